"""The application: commands by name, of which only the one asked for is imported, and how help lays them out."""

import copy
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from suite.cli.commands import ABOUT, COMMANDS, HEADINGS, Command, Group
from suite.cli.main import version_line
from suite.cli.output import ask_json, complain, print_error
from suite.cli.saved_help import content_width
from suite.spec.terminal import UsageError, note, say

#: options that every command means alike
_OUTPUT = frozenset(("as_json", "detach", "dry_run", "output", "quiet", "runs", "verbose"))
#: the argument of a command that takes its options from a file
OPTIONS_FILE = "options_file"
#: defaults of options in the working folder, in a table for each command
DEFAULTS = Path("suite.toml")
ARGUMENTS, OTHER = "Arguments", "Options"
#: headings of options (`rich_help_panel`), in the order in which help shows them
PANELS = (
    *("Work", "Layout", "Measuring", "Search", "Check and calibrate", "Where it runs"),
    *("Nodes", "Queue", "Pods", "Containers", "Output"),
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
    "DURATION": "budget hang_timeout timeout",
    "LIST": "cpuset gpu_ids",
    "N|all": "ranks",
    "NAME=VALUE": "build_arg env",
    "NAME=VALUE,...": "layout",
    "SHARE": "gate tolerance",
    "SHARE%": "difference margin until",
    "SIZE": "memory_per_rank scratch shared_memory",
    "local|docker": "launcher",
    "weak|strong": "scaling",
}


class GroupedCommand(TyperCommand):
    """A command whose help has one table of options for each heading."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """With spellings of the release before; options of files come before those of the command line."""
        ctx.meta[_EVERY] = "--help-all" in args
        words = todays_options(args)
        rest = super().parse_args(ctx, [*words])
        if ctx.resilient_parsing:
            return rest
        more: list[str] = []
        try:
            if ctx.params.get(OPTIONS_FILE) or "site" in ctx.params or os.path.isfile(DEFAULTS):
                from suite.cli.options.options_file import words_of_files

                more = words_of_files(self, ctx)
            if "--runs=" in (typed := [*more, *words]) or ("--runs", "") in pairwise(typed):
                raise UsageError("--runs '' names no folder; name one, or leave it out")
        except UsageError as error:
            ask_json(bool(ctx.params.get("as_json")))
            raise typer.Exit(complain(str(error))) from error
        if not more:
            return rest
        ctx.params.clear()
        return super().parse_args(ctx, [*more, *words])

    def get_params(self, ctx: Any) -> list[Any]:
        """With ``--help-all`` where help does not show every option."""
        params = super().get_params(ctx)
        if len(self.params) <= MOST_OPTIONS:
            return params
        every: Any = copy.copy(next(param for param in params if param.name == "help"))
        every.name, every.opts, every.help = "help_all", ["--help-all"], "Show every option."
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
        is_long = len(self.params) > MOST_OPTIONS and not ctx.meta.get(_EVERY)
        for param in self.get_params(ctx):
            if not is_long or param not in self.params or param.name in USUAL:
                label, text = plain_record(param, *param.get_help_record(ctx))
                own = getattr(param, "rich_help_panel", None) or ("Output" if param.name in _OUTPUT else OTHER)
                name = ARGUMENTS if param.param_type_name == "argument" else own
                found.setdefault(name, []).append((label, text.replace("-", _UNBROKEN_HYPHEN)))
        if len(found.keys() - {ARGUMENTS, OTHER}) < 3:
            options = [row for name, rows in found.items() if name != ARGUMENTS for row in rows]
            found = {ARGUMENTS: found.get(ARGUMENTS, []), OTHER: options}
        for name in dict.fromkeys((ARGUMENTS, *PANELS, *found)):
            if found.get(name):
                with formatter.section(name):
                    formatter.write_dl(found[name])
        if is_long:
            left = sum(param.name not in USUAL for param in self.params)
            formatter.write_paragraph()
            formatter.write_text(f"{left} more options: {ctx.command_path} --help-all")


def argument_name(param: Any) -> str:
    """``FILES...`` for an argument that may be repeated."""
    return (param.metavar or param.name.upper().replace("_", "-")) + "..." * (param.nargs != 1 and param.required)


def plain_record(param: Any, label: str, text: str) -> tuple[str, str]:
    """A row of the table in plain words, from an option's or argument's ``label`` and ``text`` as Typer shows them."""
    text = re.sub(r"x>=(\d+)", r"at least \1", text.replace("  [", " ["))
    if param.param_type_name == "argument":
        return argument_name(param), text.removesuffix(" [required]")
    if param.secondary_opts:
        name = param.opts[0].removeprefix("--")
        text = re.sub(rf"(; )?default: no-{re.escape(name)}(?=[;\]])", "", text).removesuffix(" []")
        return f"--[no-]{name}", text.replace(f"default: {name}]", "default: on]")
    names = ", ".join(sorted(param.opts, key=lambda name: len(name) - len(name.lstrip("-"))))
    return names if param.is_flag else f"{names} {metavar(param, label)}", text


def metavar(param: Any, label: str) -> str:
    """What stands for an option's value: its own metavar, else one by its name, else one by its type in ``label``."""
    own = param.metavar or next((stands for stands, names in _STANDS_FOR.items() if param.name in names.split()), None)
    if own is not None:
        return str(own)
    kind = label.rpartition(param.opts[-1])[2].lower()
    for word, stands in (("path", "PATH"), ("file", "PATH"), ("int", "N"), ("float", "NUMBER")):
        if word in kind:
            return stands
    return "NAME"


def todays_command(words: list[str]) -> list[str]:
    """`suite render LAUNCHER` as `suite submit LAUNCHER --output`."""
    if not words or words[0] != "render":
        return words
    named = any(word in ("-o", "--help", "-h") or word.startswith("--output") for word in words)
    _tell("suite render", "suite submit ... --output DIR (- prints)")
    return ["submit", *words[1:], *([] if named else ["--output", "-"])]


def todays_options(words: list[str]) -> list[str]:
    """``--precision`` as ``--until`` of a percentage, else ``--dtype``."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--precision":
            value = value if equals else next(rest, "")
            option = "--until" if "%" in value else "--dtype"
            _tell(f"--precision {value}", f"{option} {value}")
            word = f"{option}={value}"
        found.append(word)
    return found


def _tell(old: str, new: str) -> None:
    note(f"note: {old} is now {new}; the old spelling ends with the next release")


#: what Typer raises for a command line that cannot be parsed, of whichever Click it holds
UsageProblem = sys.modules[typer.BadParameter.__module__].UsageError
#: columns of the names of commands, the same under each heading
_NAMES = max(map(len, COMMANDS))


class Commands(TyperGroup):
    """A group whose commands are listed from the table and imported when one is run, explained or completed."""

    def __init__(self, *, table: Mapping[str, Command | Group] = COMMANDS, default: str = "", **settings: Any) -> None:
        listed = {
            name: TyperCommand(name, short_help=entry.summary, rich_markup_mode=None) for name, entry in table.items()
        }
        super().__init__(**{**settings, "commands": listed, "rich_markup_mode": None})
        self._table, self._default = table, default

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Text is as wide as the saved help would be."""
        return super().make_context(info_name, args, parent, **{"max_content_width": content_width(), **extra})

    def main(self, args: Any = None, *more: Any, **settings: Any) -> Any:
        """What cannot be parsed is told as JSON too where the command line asks for it."""
        words = sys.argv[1:] if args is None else args
        if not settings.get("standalone_mode", True) or "--json" not in words:
            return super().main(args, *more, **settings)
        try:
            code = super().main(args, *more, **{**settings, "standalone_mode": False})
        except UsageProblem as error:
            error.show()
            print_error(error.format_message(), error.exit_code)
            code = error.exit_code
        sys.exit(code)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        if self._table is not COMMANDS:
            super().format_commands(ctx, formatter)
            return
        for heading, names in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{_NAMES}}", self._table[name].summary) for name in names])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A group that has a default command is that one where the first word names no other."""
        args = todays_command(args) if self._table is COMMANDS else args
        names_one = bool(args) and (args[0] in self._table or args[0] in ctx.help_option_names)
        given = [self._default, *args] if self._default and not names_one and not ctx.resilient_parsing else args
        return super().parse_args(ctx, given)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that a word names. Lists and completions of names never come here."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and load(listed.name or "", self._table[listed.name or ""]), rest


def submit_command(launcher: str) -> TyperCommand | TyperGroup:
    group = COMMANDS["submit"]
    assert isinstance(group, Group)
    return load(launcher, group.commands[launcher])


def load(name: str, entry: Command | Group) -> TyperCommand | TyperGroup:
    """The command as the command line runs it. Its module is imported here."""
    if isinstance(entry, Group):
        return Commands(table=entry.commands, default=entry.default, name=name, help=entry.help, no_args_is_help=True)
    module, _, function = entry.function.partition(":")
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    own = getattr(import_module(f"suite.cli.{module}"), function)
    single.command(name, cls=GroupedCommand, short_help=entry.summary)(own)
    made = typer.main.get_command(single)
    assert isinstance(made, TyperCommand)
    return made


def _print_version(wanted: bool) -> None:
    if wanted:
        say(version_line())
        raise typer.Exit


def _suite(
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """What holds for every command."""


app = typer.Typer(
    name="suite",
    cls=Commands,
    help=ABOUT,
    callback=_suite,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
