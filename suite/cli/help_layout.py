"""How `--help` lays a command out: options under headings, in plain words."""

from __future__ import annotations

import copy
import re
from typing import Any

import typer
from typer.core import TyperCommand

from suite.cli.old_spellings import todays_options
from suite.spec.terminal import say

#: options that every command means alike
_OUTPUT = frozenset(("as_json", "detach", "dry_run", "output", "quiet", "runs", "verbose"))
#: the argument of a command that takes its options from a file
OPTIONS_FILE = "options_file"
ARGUMENTS, OTHER = "Arguments", "Options"
#: headings of options (`rich_help_panel`), in the order in which help shows them
HEADINGS = (
    "Work",
    "Layout",
    "Measuring",
    "Search",
    "Check and calibrate",
    "Where it runs",
    "Nodes",
    "Queue",
    "Pods",
    "Containers",
    "Output",
)
#: what `--help` shows of a command with more options than this; `--help-all` shows them all
MOST_OPTIONS = 35
_USUAL_NAMES = """preset backend size ladder shape workload algorithm lengths new_tokens rollouts ranks
layout tensor pipeline zero_stage recompute dtype until difference repeats iterations budget device launcher python
image runs dry_run as_json quiet verbose force nodes gpus_per_node gpu stack env mount site partition account namespace
context queue claim output files target devices objective top check calibrate"""
USUAL = frozenset(_USUAL_NAMES.split())
_EVERY = "every option"
_UNBROKEN_HYPHEN = "\u2011"
#: what stands for the value of options in help, the same in every command, where their type does not say it; of all
#: others NAME
_STANDS_FOR = {
    "AMOUNT": "price",
    "DURATION": "allowance budget hang_timeout keep pending_timeout timeout",
    "FROM..TO": "scale",
    "LIST": "cpuset gpu_ids",
    "N|all": "ranks",
    "NAME=VALUE": "build_arg env pod_annotation ulimit",
    "NAME=VALUE,...": "layout",
    "PATH": "python",
    "SHARE": "gate tolerance",
    "SHARE%": "difference margin until",
    "SIZE": "memory memory_per_rank scratch shared_memory shm_size",
    "cpu|cuda": "device",
    "fp32|bf16|fp16": "dtype",
    "local|docker": "launcher",
    "throughput|cost|latency": "objective",
    "weak|strong": "scaling",
}
METAVARS = {name: stands for stands, names in _STANDS_FOR.items() for name in names.split()}


class GroupedCommand(TyperCommand):
    """A command whose help has one table of options for each heading."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Spellings of the release before are taken too; the options of a file come before those of the command line,
        which replace them."""
        words = todays_options(args)
        rest = super().parse_args(ctx, [*words])
        file = ctx.params.get(OPTIONS_FILE)
        if file is None or ctx.resilient_parsing:
            return rest
        from suite.cli.options.options_file import words_of
        from suite.spec.base import UsageError

        given = [
            name for name in ctx.params if (source := ctx.get_parameter_source(name)) and source.name == "COMMANDLINE"
        ]
        try:
            more = words_of(file, self.params, given)
        except UsageError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param_hint="FILE") from error
        ctx.params.clear()
        return super().parse_args(ctx, [*more, *words])

    def get_params(self, ctx: Any) -> list[Any]:
        """With ``--help-all`` where help does not show every option."""
        params = super().get_params(ctx)
        if len(self.params) <= MOST_OPTIONS:
            return params
        every: Any = copy.copy(next(param for param in params if param.name == "help"))
        every.name, every.opts, every.help, every.callback = "help_all", ["--help-all"], "Show every option.", _show_all
        return [*params, every]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``[OPTIONS] MANIFEST [FILE]...``"""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = argument_name(param)
                pieces.append(name if param.required else f"[{name}]" + "..." * (param.nargs != 1))
        return pieces

    def get_help(self, ctx: Any) -> str:
        """Names such as ``ds-chat-step3`` stay whole where lines are broken."""
        return super().get_help(ctx).replace(_UNBROKEN_HYPHEN, "-")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the tables. A command with fewer than three headings has one table."""
        found: dict[str, list[tuple[str, str]]] = {}
        is_long = len(self.params) > MOST_OPTIONS and _EVERY not in ctx.meta
        for param in self.get_params(ctx):
            if is_long and param in self.params and param.name not in USUAL:
                continue
            record = param.get_help_record(ctx)
            if record is not None:
                label, text = plain_record(param, *record)
                found.setdefault(heading(param), []).append((label, text.replace("-", _UNBROKEN_HYPHEN)))
        named = [name for name in found if name not in (ARGUMENTS, OTHER)]
        if len(named) < 3:
            options = [param for param in found if param != ARGUMENTS]
            found = {ARGUMENTS: found.get(ARGUMENTS, []), OTHER: [row for name in options for row in found[name]]}
        for name in sorted(found, key=_place):
            if found[name]:
                with formatter.section(name):
                    formatter.write_dl(found[name])
        if is_long:
            left = sum(param.name not in USUAL for param in self.params)
            formatter.write_paragraph()
            formatter.write_text(f"{left} more options: {ctx.command_path} --help-all")


def _show_all(ctx: Any, param: Any, wanted: bool) -> None:
    """What ``--help-all`` does."""
    if wanted:
        ctx.meta[_EVERY] = True
        say(ctx.get_help())
        raise typer.Exit


def heading(param: Any) -> str:
    """The heading under which help shows a parameter."""
    if param.param_type_name == "argument":
        return ARGUMENTS
    return getattr(param, "rich_help_panel", None) or ("Output" if param.name in _OUTPUT else OTHER)


def _place(name: str) -> int:
    order = (ARGUMENTS, *HEADINGS)
    return order.index(name) if name in order else len(order)


def argument_name(param: Any) -> str:
    """``FILES...`` for an argument that may be repeated."""
    return (param.metavar or param.name.upper().replace("_", "-")) + "..." * (param.nargs != 1 and param.required)


def plain_record(param: Any, label: str, text: str) -> tuple[str, str]:
    """A row of the table, in plain words.

    Args:
        param: the option or argument.
        label: its names and its type, as Typer shows them.
        text: its help, followed by its default.
    """
    # older versions of Typer escape brackets whether they are markup or not
    text = re.sub(r"x>=(\d+)", r"at least \1", text.replace("\\[", "[").replace("  [", " ["))
    if param.param_type_name == "argument":
        return argument_name(param), text.removesuffix(" [required]")
    if getattr(param, "secondary_opts", ()):
        name = param.opts[0].removeprefix("--")
        text = re.sub(rf"(; )?default: no-{re.escape(name)}(?=[;\]])", "", text).removesuffix(" []")
        return f"--[no-]{name}", text.replace(f"default: {name}]", "default: on]")
    names = ", ".join(sorted(param.opts, key=lambda name: len(name) - len(name.lstrip("-"))))
    if getattr(param, "is_flag", False) or getattr(param, "count", False):
        return names, text
    return f"{names} {metavar(param, label)}", text


def metavar(param: Any, label: str) -> str:
    """What stands for an option's value: its own metavar, else one by its name, else one by its type in ``label``."""
    if param.metavar:
        return str(param.metavar)
    if param.name in METAVARS:
        return METAVARS[param.name]
    kind = label.rpartition(param.opts[-1])[2].lower()
    for word, stands in (("path", "PATH"), ("file", "PATH"), ("int", "N"), ("float", "NUMBER")):
        if word in kind:
            return stands
    return "NAME"
