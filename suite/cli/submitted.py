"""`suite status`, `collect`, `cancel` and `clean`: runs that were submitted to clusters, and what is left of them."""

from functools import partial
from pathlib import Path
from typing import Any

from suite.bundle.store import DamagedBundle
from suite.cli.exits import DONE, RUN_FAILED, command
from suite.cli.options.declare import argument, flag, option, submitted_runs
from suite.cli.options.handing_over import tell_network
from suite.cli.options.reading import confirmed, print_json, seconds, without_collector
from suite.conduct.cluster import standing as clusters
from suite.conduct.cluster.cleaning import leftovers
from suite.conduct.cluster.cleaning import remove as remove_files
from suite.conduct.running.outcome_line import outcome_line
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.scheduler import SchedulerState
from suite.launch.cluster.submission import SMOKE, Submission
from suite.spec.terminal import UsageError, printable, say


@command
def status(
    run: list[str] | None = argument("run ids [default: all that were submitted]", None, autocompletion=submitted_runs),
    runs: Path = option("results folder", Path("runs")),
    as_json: bool = flag("print as JSON", "--json"),
) -> int:
    """Show how far each run is that a cluster was given, and why it waits. Exit 1 when one could not be asked."""
    ask = clusters.standing if run and len(run) == 1 else clusters.asked
    rows = [(each, ask(runs, each)) for each in clusters.chosen(runs, run or [])]
    if as_json:
        print_json([_document(each, state) for each, state in rows])
    elif not rows:
        say(f"nothing was submitted to a cluster from {runs}")
    for each, state in () if as_json else rows:
        say("  ".join(filter(None, (each.run_id, state.word, state.detail))))
    return RUN_FAILED if any(state.phase == "unknown" for _, state in rows) else DONE


def _document(own: Submission, state: SchedulerState) -> dict[str, Any]:
    facts = {"run": own.run_id, "launcher": own.launcher, "submitted": own.submitted, "engine": own.scheduler}
    return {**facts, "collected": state == clusters.COLLECTED, **state.model_dump(mode="json")}


@command
def collect(
    run: list[str] | None = argument(
        "run ids [default: all that have ended and were not collected yet]",
        None,
        autocompletion=submitted_runs,
    ),
    runs: Path = option("results folder", Path("runs")),
    wait: bool = flag("wait until the runs have ended"),
    as_json: bool = flag("print the outcome as JSON", "--json"),
) -> int:
    """Fetch what submitted runs have written and make their bundles. Exit 1 when one failed or could not be fetched."""
    collected: dict[str, dict] = {}
    left: dict[str, str] = {}
    is_missed = False
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
        failure = record.failure
        collected[submission.run_id] = {"status": record.status, "failure": failure and failure.kind}
        if not as_json:
            say(f"{submission.run_id}: {outcome_line(record)}")
        if runs.name == SMOKE:
            told = tell_network(record, lambda line: None if as_json else say(line))
            collected[submission.run_id]["network"] = told
    if as_json:
        print_json({"collected": collected, "left": left})
    else:
        for run_id, why in left.items():
            say(printable(f"{run_id}: not collected: {why}"), err=True)
        if not collected and not left:
            say(f"nothing to collect in {runs}: suite status lists what was submitted")
    return DONE if not is_missed and all(entry["status"] == "ok" for entry in collected.values()) else RUN_FAILED


@command
def cancel(
    run: list[str] | None = argument("run ids", None, autocompletion=submitted_runs),
    everything: bool = flag("all that are pending or running", "--all"),
    runs: Path = option("results folder", Path("runs")),
    as_json: bool = flag("print what was cancelled as JSON", "--json"),
) -> int:
    """Cancel submitted runs. Their bundles can still be collected, with the status interrupted. Exit 1 when one could
    not be cancelled."""
    if bool(run) == everything:
        raise UsageError("name the runs to cancel, or give --all (`suite status` lists them)")
    ended: list[str] = []
    left: dict[str, str] = {}
    missed: dict[str, str] = {}
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
    if as_json:
        print_json({"cancelled": ended, "over": sorted(left), "failed": missed})
        return RUN_FAILED if missed else DONE
    for run_id in ended:
        say(f"{run_id}: cancel requested; suite collect --wait makes its bundle")
    for run_id, word in left.items():
        say(f"{run_id}: nothing to cancel: {word}")
    for run_id, why in missed.items():
        say(printable(f"{run_id}: not cancelled: {why}"), err=True)
    if not ended and not left and not missed:
        say("nothing to cancel: no run is pending or running")
    return RUN_FAILED if missed else DONE


@command
def clean(
    runs: Path = option("results folder", Path("runs")),
    older_than: str | None = option("only of runs that ended so long ago, e.g. 24h", metavar="DURATION"),
    dry_run: bool = flag("list what would be removed, and remove nothing"),
    yes: bool = flag("do not ask", "--yes", "-y"),
    as_json: bool = flag("print as JSON; removes only with --yes", "--json"),
) -> int:
    """Remove the outputs and submission files of runs whose bundles were collected. Bundles are never touched.

    What was not collected stays, and so does a run whose bundle is damaged or older than its last submission.
    """
    found = leftovers(runs, None if older_than is None else seconds("--older-than", older_than))
    total = sum(each.bytes for each in found.removable)
    if not as_json:
        for each in found.removable:
            say(f"{each.run_id}: {len(each.files)} files, {each.bytes / 2**20:.1f} MiB")
        for run_id, why in found.kept.items():
            say(f"{run_id}: stays, {why}", err=True)
        if not found.removable:
            say(f"nothing to remove beside the results in {runs}")
    removed = bool(found.removable) and not dry_run and (yes or not as_json)
    if removed and not yes:
        question = f"remove {sum(len(each.files) for each in found.removable)} files, {total / 2**20:.1f} MiB?"
        if not confirmed(question):
            raise UsageError("nothing was removed; --yes removes without asking")
    if removed:
        for each in found.removable:
            remove_files(each)
        if not as_json:
            say(f"removed {total / 2**20:.1f} MiB of {len(found.removable)} runs")
    if as_json:
        print_json({**found.model_dump(mode="json"), "bytes": total, "removed": removed})
    return DONE
