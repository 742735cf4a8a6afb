"""`suite submit`: submit runs to a cluster; `suite collect` makes their bundles. A sub-command per launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from suite.cli.exits import DONE, RUN_FAILED, command
from suite.cli.options.cluster import Nodes
from suite.cli.options.groups import takes_groups
from suite.cli.options.work import Work
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.conduct.cluster.to_do import ToDo


@dataclass(frozen=True)
class MayWait:
    """Of a launcher that waits for each run and collects it."""

    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="submit all runs at once and return; they disturb each other; suite collect makes their bundles",
            rich_help_panel="Output",
        ),
    ] = False


@dataclass(frozen=True)
class NeverWaits:
    """Of a launcher that submits all runs and returns."""

    detach: ClassVar[bool] = True


def _submit(name: str) -> Callable[..., None]:
    """The sub-command of one launcher."""
    kind = find_launcher(name)

    def submit(
        *,
        typed: typer.Context,
        work: Work,
        nodes: Nodes,
        options: Any,
        waiting: Any,
        smoke: Annotated[
            bool,
            typer.Option(
                "--smoke",
                help="first a run of minutes on the same nodes; where it fails, the others are not started",
                rich_help_panel="Measuring",
            ),
        ] = False,
        dry_run: Annotated[
            bool,
            typer.Option(
                "--dry-run",
                help="print the plan, what it should need and what would be sent, and submit nothing",
                rich_help_panel="Output",
            ),
        ] = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="print the outcome as JSON", rich_help_panel="Output")
        ] = False,
    ) -> int:
        from suite.cli.options.handing_over import HandingOver, dry
        from suite.cli.options.reading import print_json
        from suite.cli.options.site import with_site

        nodes, options = with_site(typed, name, work, nodes, options)
        launcher = nodes.launcher(kind, options)
        if dry_run:
            return dry(work, nodes, launcher, smoke, as_json)
        launcher.connect()
        documents, to_do = nodes.documents(work, launcher)
        # where nothing is waited for, the JSON itself comes at once
        handing = HandingOver(launcher, quiet=as_json and not kind.waits, to_stderr=as_json)
        if smoke and documents and not handing.smoke(nodes.smoke(work, launcher, to_do.manifests), nodes.runs):
            return RUN_FAILED
        if waiting.detach and kind.waits and len(documents) > 1:
            handing.show(
                "note: detached runs start side by side where there is room, and measure each other", note=True
            )
        for document in documents:
            handing.submit(document, nodes.runs, wait=not waiting.detach)
        if as_json:
            others = to_do.with_others(handing.taken).model_dump(mode="json", exclude={"manifests"})
            print_json({**launcher.submitted_json(handing.submitted, handing.statuses), **others, **handing.first})
        else:
            _show_what_is_left(to_do.with_others(handing.taken), nodes, waiting.detach)
        return DONE if set(handing.statuses.values()) <= {"ok", "submitted"} else RUN_FAILED

    submit.__annotations__.update(options=kind.options, waiting=MayWait if kind.waits else NeverWaits)
    submit.__doc__ = kind.submit_help
    return command(takes_groups(submit))


def _show_what_is_left(found: ToDo, nodes: Nodes, uncollected: bool) -> None:
    for state, run_ids in found.model_dump(exclude={"manifests"}).items():
        if run_ids:
            say(f"{state.replace('_', ' ')}, so not submitted: {', '.join(run_ids)}")
    if uncollected:
        say(f"to make their bundles: suite collect --wait --runs {quote(str(nodes.runs))}")


def __getattr__(name: str) -> Callable[..., None]:
    """The sub-command of a registered launcher, as the table of commands asks for it."""
    if name in CLUSTER_LAUNCHERS:
        return _submit(name)
    raise AttributeError(name)
