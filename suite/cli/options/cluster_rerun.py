"""`suite rerun --launcher slurm` and its like: submit a manifest's runs, wait for them and make their bundles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from suite.spec.terminal import note

if TYPE_CHECKING:
    from suite.cli.options.launchers import Where
    from suite.conduct.cluster.standing import Standing


def forwarded(where: Where) -> list[str]:
    """Options of `suite rerun` that `suite submit` has too, as they were given."""
    given = [f"--{name}={value}" for name, value in (("image", where.image),) if value is not None]
    for name, values in (("env", where.env), ("python", where.python)):
        given += [f"--{name}={value}" for value in values or ()]
    return [*given, "--require-idle"] if where.require_idle else given


def runs_on_cluster(launcher: str, manifest: Path, count: int, runs: Path, options: Sequence[str]) -> list[str]:
    """Ids of the runs, of which each has its bundle then; what becomes of them goes to standard error.

    The same command goes on with what is not done, and submits nothing twice. Raises UsageError.
    """
    from suite.conduct.cluster.standing import chosen, collect_run, wait_until_over
    from suite.conduct.running.outcome_line import outcome_line

    names = _submitted(launcher, ["--manifest", str(manifest), "--repeats", str(count), "--runs", str(runs), *options])
    left = [name for name in names if not (runs / name).exists()]
    for submission in chosen(runs, left) if left else ():
        wait_until_over(runs, submission, _show)
        record = collect_run(runs, submission)
        note(f"{submission.run_id}: {outcome_line(record)}")
    return names


def _submitted(launcher: str, arguments: list[str]) -> list[str]:
    """Ids of the runs that `suite submit` hands over with these options, or finds done or under way."""
    from suite.cli.app import UsageProblem, load
    from suite.cli.commands import COMMANDS, Group
    from suite.cli.options.groups import in_groups
    from suite.cli.options.handing_over import submit_all
    from suite.cli.options.site import with_site
    from suite.cli.submit import submission_of
    from suite.launch.cluster.registry import find_launcher
    from suite.spec.base import UsageError

    group = COMMANDS["submit"]
    assert isinstance(group, Group)
    try:
        typed = load(launcher, group.commands[launcher]).make_context(f"suite submit {launcher}", arguments)
    except UsageProblem as error:
        raise UsageError(f"suite submit {launcher}: {error.format_message()}") from error
    # an option that may be repeated and was not given is an empty tuple before the command itself is called
    params = {name: None if value == () else value for name, value in typed.params.items()}
    given = in_groups(submission_of(launcher), {**params, "typed": typed})
    if given["smoke"] or given["dry_run"] or given["output"] or given["as_json"]:
        raise UsageError("--smoke, --dry-run, --output and --json are of suite submit alone: leave them out after --")
    nodes, options = with_site(typed, launcher, given["work"], given["nodes"], given["options"])
    made = nodes.launcher(find_launcher(launcher), options)
    done = submit_all(given["work"], nodes, made, smoke=False, detach=given["waiting"].detach, to_stderr=True)
    found = done.left
    others = (*found.done, *found.failed, *found.under_way, *found.uncollected)
    return sorted({*others, *(each.run.id for each in found.manifests)})


def _show(now: Standing) -> None:
    note(f"{now.submission.run_id}: {now.state.word} {now.state.detail}".rstrip())
