"""`suite submit`: submit runs to a cluster; `suite collect` makes their bundles. A sub-command per launcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
            help="submit all runs at once and return; suite collect makes their bundles",
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
        work: Work,
        nodes: Nodes,
        options: Any,
        waiting: Any,
        dry_run: Annotated[
            bool,
            typer.Option(
                "--dry-run",
                help="print the plan with what it should need, and submit nothing",
                rich_help_panel="Output",
            ),
        ] = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="print the outcome as JSON", rich_help_panel="Output")
        ] = False,
    ) -> int:
        from suite.cli.options.check import show_plan
        from suite.cli.options.reading import print_json
        from suite.conduct.cluster.hand_over import hand_over
        from suite.conduct.cluster.standing import Standing, collect_run, wait_until_over
        from suite.conduct.running.outcome_line import outcome_line

        def show(text: str) -> None:
            if kind.waits or not as_json:  # where nothing is waited for, the JSON itself comes at once
                say(text, err=as_json)

        def show_state(now: Standing) -> None:
            show(f"    {now.state.word}: {now.state.detail}".rstrip(": "))

        launcher = nodes.launcher(kind, options)
        if dry_run:
            plan, found = nodes.look(work, launcher)
            return show_plan(plan, found, nodes.runs, nodes.retry_failed, work, as_json)
        launcher.connect()
        documents, to_do = nodes.documents(work, launcher)
        submitted, statuses = [], {}
        for document in documents:
            for submission in hand_over(launcher, document, nodes.runs):
                submitted.append(submission)
                statuses[submission.run_id] = "submitted"
                show(f"{submission.run_id}: {launcher.where(submission)}")
                if not waiting.detach:
                    wait_until_over(nodes.runs, submission, show_state)
                    record = collect_run(nodes.runs, submission)
                    statuses[submission.run_id] = record.status
                    show(f"    {outcome_line(record)}")
        if as_json:
            others = to_do.model_dump(mode="json", exclude={"manifests"})
            print_json({**launcher.submitted_json(submitted, statuses), **others})
        else:
            _show_what_is_left(to_do, nodes, waiting.detach)
        return DONE if set(statuses.values()) <= {"ok", "submitted"} else RUN_FAILED

    submit.__annotations__.update(options=kind.options, waiting=MayWait if kind.waits else NeverWaits)
    submit.__doc__ = kind.submit_help
    return command(takes_groups(submit))


def _show_what_is_left(found: ToDo, nodes: Nodes, uncollected: bool) -> None:
    for state, run_ids in found.model_dump(exclude={"manifests"}).items():
        if run_ids:
            say(f"{state.replace('_', ' ')}, so not submitted: {', '.join(run_ids)}")
    if uncollected:
        say(f"to make their bundles: suite collect --wait --runs {nodes.runs}")


def __getattr__(name: str) -> Callable[..., None]:
    """The sub-command of a registered launcher, as the table of commands asks for it."""
    if name in CLUSTER_LAUNCHERS:
        return _submit(name)
    raise AttributeError(name)
