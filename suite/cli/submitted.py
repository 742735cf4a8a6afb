"""`suite status`, `collect`, `cancel` and `clean`: runs that were submitted to clusters, and what is left of them."""

from functools import partial
from pathlib import Path
from typing import Any

from suite.bundle.store import DamagedBundle
from suite.cli.command import argument, command, flag, option, submitted_runs
from suite.cli.output import DONE, RUN_FAILED, agreed, answer, is_json, without_collector
from suite.cli.submit import tell_network
from suite.conduct.cluster import standing as clusters
from suite.conduct.running.outcome_line import outcome_line
from suite.launch.cluster.launcher import SchedulerState
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.submission import SMOKE, Submission
from suite.spec.terminal import UsageError, printable, say, say_lines
from suite.spec.typed import seconds


@command("print as JSON")
def status(
    run: list[str] | None = argument("run ids [default: all that were submitted]", None, autocompletion=submitted_runs),
    runs: Path = option("results folder", Path("runs")),
) -> int:
    """Show how far each run is that a cluster was given, and why it waits. Exit 1 when one could not be asked."""
    ask = clusters.standing if run and len(run) == 1 else clusters.asked
    rows = [(each, ask(runs, each)) for each in clusters.chosen(runs, run or [])]
    lines = ["  ".join(filter(None, (each.run_id, state.word, state.detail))) for each, state in rows]
    documents = [_document(each, state) for each, state in rows]
    answer(documents, lines or [f"nothing was submitted to a cluster from {runs}"])
    return RUN_FAILED if any(state.phase == "unknown" for _, state in rows) else DONE


def _document(own: Submission, state: SchedulerState) -> dict[str, Any]:
    facts = {"run": own.run_id, "launcher": own.launcher, "submitted": own.submitted, "engine": own.scheduler}
    return {**facts, "collected": state == clusters.COLLECTED, **state.model_dump(mode="json")}


@command("print the outcome as JSON")
def collect(
    run: list[str] | None = argument(
        "run ids [default: all that have ended and were not collected yet]", None, autocompletion=submitted_runs
    ),
    runs: Path = option("results folder", Path("runs")),
    wait: bool = flag("wait until the runs have ended"),
) -> int:
    """Fetch what submitted runs have written and make their bundles. Exit 1 when one failed or could not be fetched."""
    collected, left, is_missed = dict[str, dict](), dict[str, str](), False
    for submission in clusters.chosen(runs, run or []):
        try:
            if wait:
                clusters.wait_until_over(runs, submission, partial(clusters.note_state, submission))
            if not run:
                now = clusters.without_hopeless(runs, submission, clusters.standing(runs, submission))
                if now == clusters.COLLECTED:
                    continue
                if now.is_under_way or now.word == "rendered":
                    left[submission.run_id] = now.word
                    continue
            with without_collector():
                record = clusters.collect_run(runs, submission)
        except (DamagedBundle, UsageError) as error:
            if run and len(run) == 1:
                raise
            left[submission.run_id] = str(error)
            is_missed = True
            continue
        failure = record.failure and record.failure.kind
        collected[submission.run_id] = {"status": record.status, "failure": failure}
        if not is_json():
            say(f"{submission.run_id}: {outcome_line(record)}")
        if runs.name == SMOKE:
            told = tell_network(record, lambda line: None if is_json() else say(line))
            collected[submission.run_id]["network"] = told
    for run_id, why in () if is_json() else left.items():
        say(printable(f"{run_id}: not collected: {why}"), err=True)
    nothing = [f"nothing to collect in {runs}: suite status lists what was submitted"]
    answer({"collected": collected, "left": left}, [] if collected or left else nothing)
    return DONE if not is_missed and all(entry["status"] == "ok" for entry in collected.values()) else RUN_FAILED


@command("print what was cancelled as JSON")
def cancel(
    run: list[str] | None = argument("run ids", None, autocompletion=submitted_runs),
    everything: bool = flag("all that are pending or running", "--all"),
    runs: Path = option("results folder", Path("runs")),
) -> int:
    """Cancel submitted runs. Their bundles can still be collected, with the status interrupted. Exit 1 when one could
    not be cancelled."""
    if bool(run) == everything:
        raise UsageError("name the runs to cancel, or give --all (`suite status` lists them)")
    ended, left, missed = list[str](), dict[str, str](), dict[str, str]()
    for submission in clusters.chosen(runs, run or []):
        try:
            now = clusters.standing(runs, submission)
            if now.is_under_way:
                find_scheduler(submission.launcher).cancel(submission)
                ended.append(submission.run_id)
            elif run:
                left[submission.run_id] = now.line
        except UsageError as error:
            if run and len(run) == 1:
                raise
            missed[submission.run_id] = str(error)
    lines = [f"{run_id}: cancel requested; suite collect --wait makes its bundle" for run_id in ended]
    lines += [f"{run_id}: nothing to cancel: {word}" for run_id, word in left.items()]
    nothing = [] if missed else ["nothing to cancel: no run is pending or running"]
    answer({"cancelled": ended, "over": sorted(left), "failed": missed}, lines or nothing)
    for run_id, why in () if is_json() else missed.items():
        say(printable(f"{run_id}: not cancelled: {why}"), err=True)
    return RUN_FAILED if missed else DONE


@command("print as JSON; removes only with --yes")
def clean(
    runs: Path = option("results folder", Path("runs")),
    older_than: str | None = option("only of runs that ended so long ago, e.g. 24h", metavar="DURATION"),
    dry_run: bool = flag("list what would be removed, and remove nothing"),
    yes: bool = flag("do not ask", "--yes", "-y"),
) -> None:
    """Remove the outputs and submission files of runs whose bundles were collected. Bundles are never touched.

    What was not collected stays, and so does a run whose bundle is damaged or older than its last submission.
    """
    found = clusters.leftovers(runs, None if older_than is None else seconds("--older-than", older_than))
    total = sum(each.bytes for each in found.removable)
    if not is_json():
        lines = [f"{one.run_id}: {len(one.files)} files, {one.bytes / 2**20:.1f} MiB" for one in found.removable]
        say_lines(lines or [f"nothing to remove beside the results in {runs}"])
        for run_id, why in found.kept.items():
            say(f"{run_id}: stays, {why}", err=True)
    files = sum(len(each.files) for each in found.removable)
    removed = bool(found.removable) and not dry_run
    removed = removed and agreed(f"remove {files} files, {total / 2**20:.1f} MiB?", yes)
    for each in found.removable if removed else ():
        clusters.remove_files(each)
    done = [f"removed {total / 2**20:.1f} MiB of {len(found.removable)} runs"] if removed else []
    answer({**found.model_dump(mode="json"), "bytes": total, "removed": removed}, done)
