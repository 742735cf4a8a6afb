"""The table of commands: the function behind each name, and the line that help shows for it. Imports nothing heavy."""

from collections.abc import Mapping
from typing import NamedTuple

from suite.launch.cluster.registry import CLUSTER_LAUNCHERS

ABOUT = "Measure how well distributed training backends carry RLHF: throughput, scaling and memory efficiency."


class Command(NamedTuple):
    """One command. ``function`` is ``MODULE:NAME`` below `suite.cli`, imported when the command is asked for."""

    function: str
    summary: str


class Group(NamedTuple):
    """A command that has commands of its own. ``default``: which one is meant where none is named; empty: none."""

    summary: str
    help: str
    commands: Mapping[str, Command]
    default: str = ""


_MEASURE: Mapping[str, Command | Group] = {
    "run": Command("run:run", "measure backends, model sizes, numbers of ranks and layouts"),
    "tune": Command("run:tune", "search each stack's best layout under equal budgets"),
    "rerun": Command("rerun:rerun", "repeat a run from its manifest"),
    "plan": Command("plan:plan", "predict memory, time and cost before a run"),
}
_LOOK: Mapping[str, Command | Group] = {
    "report": Command("report:report", "show the results, or write a report with plots"),
    "compare": Command("compare:compare", "compare two results folders, with a gate for CI"),
    "verify": Command("verify:verify", "derive records again from the raw events"),
    "runs": Group(
        "list, tag and remove runs",
        "List, tag and remove runs. `suite runs FOLDER` is `suite runs list FOLDER`.",
        {
            "list": Command("runs:list_runs", "list runs with their state"),
            "tag": Command("runs:tag", "give runs tags, or take them"),
            "remove": Command("runs:remove", "remove runs for good"),
        },
        default="list",
    ),
    "logs": Command("logs:logs", "show what a run prints"),
    "site": Command("site:site", "write a site of results over time, with change points"),
}
_CLUSTERS: Mapping[str, Command | Group] = {
    "submit": Group(
        "submit runs to Slurm or Kubernetes, or write the files for it",
        "Submit runs to Slurm or Kubernetes, or write the files for it. `suite collect` fetches their results.",
        {name: Command(f"submit:{name}", f"submit jobs to {name.capitalize()}") for name in CLUSTER_LAUNCHERS},
    ),
    "status": Command("submitted:status", "show the state of submitted runs"),
    "collect": Command("submitted:collect", "fetch the results of submitted runs"),
    "cancel": Command("submitted:cancel", "cancel submitted runs"),
    "clean": Command("submitted:clean", "remove what is left of collected runs"),
}
_HAND_ON: Mapping[str, Command | Group] = {
    "pack": Command("archives:pack", "put a results folder into one file"),
    "unpack": Command("archives:unpack", "unpack such a file into a folder"),
    "export": Command("export:export", "write the results as Parquet, CSV, JSON Lines or OpenMetrics"),
    "import": Command("import_log:import_log", "take over another tool's step log, marked as imported"),
}
_MORE: Mapping[str, Command | Group] = {
    "doctor": Command("doctor:doctor", "show what this machine can run, and why not the rest"),
    "sizes": Command("sizes:sizes", "list the model sizes and the presets"),
    "backends": Command("doctor:backends", "list the backends and the versions installed"),
    "images": Group(
        "list, build and check the container images",
        "List, build, lock, check and describe the container images that hold the training stacks.",
        {
            "list": Command("images:list_images", "list the images, their bases and what is here already"),
            "build": Command("images:build", "build an image from this checkout"),
            "wheelhouse": Command("images:wheelhouse", "download what a CPU image is built from"),
            "lock": Command("images:lock", "compare the pinned digests of the bases with the registries"),
            "check": Command("images:check", "compare an image's contents with its locks and labels"),
            "stack": Command("images:stack", "write down what an image's stack holds, for an image file"),
        },
    ),
    "schema": Command("doctor:schema", "print the JSON Schema of a file that the suite writes"),
    "claims": Group(
        "check published figures against each other",
        "Check published figures against each other.",
        {"check": Command("claims:check", "recompute the columns of a published table")},
    ),
}
#: names of commands under the headings of `suite --help`
HEADINGS = {"Measure": _MEASURE, "Look": _LOOK, "Clusters": _CLUSTERS, "Hand on": _HAND_ON, "More": _MORE}
COMMANDS = {name: entry for group in HEADINGS.values() for name, entry in group.items()}


def command_paths() -> list[tuple[str, ...]]:
    """The words of every command and group, ``()`` for the application itself."""
    paths: list[tuple[str, ...]] = [()]
    for name, entry in COMMANDS.items():
        paths.append((name,))
        if isinstance(entry, Group):
            paths += [(name, below) for below in entry.commands]
    return paths
