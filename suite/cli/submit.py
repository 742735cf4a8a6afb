"""`suite submit`: submit runs to a cluster, or write the files for it. A sub-command per launcher."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer

from suite.cli.exits import command
from suite.cli.options.cluster import Nodes
from suite.cli.options.declare import flag, option
from suite.cli.options.fields import option_group
from suite.cli.options.handing_over import dry, show_submitted, submit_all, write_files
from suite.cli.options.reading import print_json
from suite.cli.options.site import with_site
from suite.cli.options.work import Work
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec.terminal import UsageError


@dataclass(frozen=True)
class MayWait:
    """Of a launcher that waits for each run and collects it."""

    detach: bool = flag(
        "submit all runs at once and return; their timings may interfere; suite collect makes their bundles"
    )


@dataclass(frozen=True)
class NeverWaits:
    """Of a launcher that submits all runs and returns."""

    detach: ClassVar[bool] = True


def submission_of(name: str) -> Callable[..., int]:
    """What the sub-command of a launcher does."""
    kind = find_launcher(name)

    def submit(
        *,
        typed: typer.Context,
        work: Work,
        nodes: Nodes,
        options: Any,
        waiting: Any,
        smoke: bool = flag(
            "first a run of minutes on the same nodes; where it fails, the others are not started",
            panel="Measuring",
        ),
        dry_run: bool = flag("print the plan, what it should need and what would be sent, and submit nothing"),
        output: Path | None = option(
            "submit nothing: write the files for the scheduler into this folder, or print them (-)",
            None,
            "--output",
            "-o",
            metavar="DIR",
        ),
        as_json: bool = flag("print the outcome as JSON", "--json"),
    ) -> int:
        nodes = with_site(typed, work, nodes)
        launcher = nodes.launcher(kind, options)
        if output is not None:
            if smoke or dry_run:
                raise UsageError(f"--output submits nothing: leave out {'--smoke' if smoke else '--dry-run'}")
            return write_files(work, nodes, launcher, output, as_json)
        if dry_run:
            return dry(work, nodes, launcher, smoke, as_json)
        # where nothing is waited for, the JSON itself comes at once
        done = submit_all(work, nodes, launcher, smoke, waiting.detach, as_json, quiet=as_json and not kind.waits)
        if as_json and not done.is_refused:
            print_json(done.document())
        elif not done.is_refused:
            show_submitted(done, nodes, waiting.detach)
        return done.code

    group = option_group(kind.options, kind.options.HEADING)
    submit.__annotations__.update(options=group, waiting=MayWait if kind.waits else NeverWaits)
    submit.__doc__ = kind.submit_help
    return submit


def __getattr__(name: str) -> Callable[..., None]:
    """The sub-command of a registered launcher, as the table of commands asks for it."""
    if name in CLUSTER_LAUNCHERS:
        return command(submission_of(name))
    raise AttributeError(name)
