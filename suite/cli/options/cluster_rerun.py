"""`suite rerun --launcher slurm` and its like: submit a manifest's runs, wait for them and make their bundles."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from suite.cli.exits import BAD_USAGE, DONE, RUN_FAILED
from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.cli.options.launchers import Where
    from suite.conduct.cluster.standing import Standing

_LISTS = ("done", "failed", "under_way", "uncollected")


def forwarded(where: Where) -> list[str]:
    """Options of `suite rerun` that `suite submit` has too, as they were given."""
    given = [f"--{name}={value}" for name, value in (("image", where.image),) if value is not None]
    for name, values in (("env", where.env), ("python", where.python)):
        given += [f"--{name}={value}" for value in values or ()]
    return [*given, "--require-idle"] if where.require_idle else given


def runs_on_cluster(launcher: str, manifest: Path, count: int, runs: Path, options: Sequence[str]) -> list[str]:
    """Ids of the runs, of which each has its bundle then; what becomes of them goes to standard error.

    The same command goes on with what is not done, and submits nothing twice. Raises typer.Exit where `suite submit`
    refuses, which has said why.
    """
    from suite.conduct.cluster.standing import chosen, collect_run, wait_until_over
    from suite.conduct.running.outcome_line import outcome_line

    names = _submitted(
        launcher, ["--manifest", str(manifest), "--repeats", str(count), "--runs", str(runs), "--json", *options]
    )
    left = [name for name in names if not (runs / name).exists()]
    for submission in chosen(runs, left) if left else ():
        wait_until_over(runs, submission, _show)
        record = collect_run(runs, submission)
        say(f"{submission.run_id}: {outcome_line(record)}", err=True)
    return names


def _submitted(launcher: str, arguments: list[str]) -> list[str]:
    """Ids of the runs that `suite submit` handed over, or found done or under way."""
    from click import ClickException

    from suite.cli.app import load
    from suite.cli.commands import COMMANDS, Group
    from suite.spec.base import UsageError

    group = COMMANDS["submit"]
    assert isinstance(group, Group)
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            code = load(launcher, group.commands[launcher]).main(
                arguments, prog_name=f"suite submit {launcher}", standalone_mode=False
            )
    except ClickException as error:
        raise UsageError(f"suite submit {launcher}: {error.format_message()}") from error
    if code not in (DONE, RUN_FAILED):
        raise typer.Exit(BAD_USAGE if code is None else code)
    body = json.loads(said.getvalue())
    handed = body.get("jobs") or body.get("runs") or {}
    return sorted({*handed, *(name for each in _LISTS for name in body[each])})


def _show(now: Standing) -> None:
    say(f"{now.submission.run_id}: {now.state.word} {now.state.detail}".rstrip(), err=True)
