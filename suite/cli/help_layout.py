"""How `--help` lays a command out: options under headings, in plain words."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

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
_UNBROKEN_HYPHEN = "\u2011"
#: what stands for an option's value in help, the same in every command, where its type does not say it
METAVARS = {
    "margin": "SHARE%",
    "account": "NAME",
    "allowance": "DURATION",
    "backend": "NAME",
    "base_image": "NAME",
    "budget": "DURATION",
    "build_arg": "NAME=VALUE",
    "claim": "NAME",
    "column": "NAME=MEANING",
    "constraint": "FEATURES",
    "container": "pyxis|apptainer|none",
    "context": "NAME",
    "cpu_bind": "none|cores|ldoms",
    "cpus_per_node": "N",
    "cpuset": "LIST",
    "device": "cpu|cuda",
    "difference": "SHARE%",
    "env": "NAME=VALUE",
    "gang": "coscheduling|volcano",
    "gate": "SHARE",
    "gpu": "NAME",
    "gpu_access": "auto|nvidia|cdi",
    "gpu_ids": "LIST",
    "gpu_request": "gpus-per-node|gres",
    "gpu_resource": "NAME",
    "gpu_type": "NAME",
    "hang_timeout": "DURATION",
    "hint": "nomultithread",
    "image": "NAME",
    "ipc": "private|host",
    "keep": "DURATION",
    "ladder": "NAME",
    "launcher": "local|docker",
    "memory": "SIZE",
    "memory_per_rank": "SIZE",
    "mount": "SOURCE:TARGET",
    "namespace": "NAME",
    "network": "NAME",
    "node_selector": "LABEL=VALUE",
    "objective": "throughput|cost|latency",
    "partition": "NAME",
    "pending_timeout": "DURATION",
    "pod_annotation": "NAME=VALUE",
    "precision": "fp32|bf16|fp16|SHARE%",
    "preset": "NAME",
    "price": "AMOUNT",
    "priority_class": "NAME",
    "pull": "missing|never|always",
    "pull_secret": "NAME",
    "python": "PATH",
    "qos": "NAME",
    "queue": "NAME",
    "ranks": "N|all",
    "rdma": "RESOURCE[=N]",
    "reservation": "NAME",
    "runtime_class": "NAME",
    "sbatch": "OPTION",
    "scale": "FROM..TO",
    "scaling": "weak|strong",
    "scratch": "SIZE",
    "service_account": "NAME",
    "shared_memory": "SIZE",
    "shm_size": "SIZE",
    "size": "NAME",
    "stack": "PACKAGE=VERSION|FILE",
    "starter": "torchrun|srun",
    "tag": "NAME",
    "target": "NAME",
    "timeout": "DURATION",
    "tolerance": "SHARE",
    "toleration": "TAINT",
    "topology": "LABEL",
    "track": "TRACK",
    "ulimit": "NAME=VALUE",
    "variant": "NAME",
    "workload": "NAME",
}


class GroupedCommand(TyperCommand):
    """A command whose help has one table of options for each heading."""

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
        """Write the tables. A command that names fewer than two headings has one table."""
        found: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                label, text = plain_record(param, *record)
                found.setdefault(heading(param), []).append((label, text.replace("-", _UNBROKEN_HYPHEN)))
        named = [name for name in found if name not in (ARGUMENTS, OTHER)]
        if len(named) < 2:
            options = [param for param in found if param != ARGUMENTS]
            found = {ARGUMENTS: found.get(ARGUMENTS, []), OTHER: [row for name in options for row in found[name]]}
        for name in sorted(found, key=_place):
            if found[name]:
                with formatter.section(name):
                    formatter.write_dl(found[name])


def heading(param: Any) -> str:
    """The heading under which help shows a parameter."""
    if param.param_type_name == "argument":
        return ARGUMENTS
    return getattr(param, "rich_help_panel", None) or OTHER


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
    return "TEXT"
