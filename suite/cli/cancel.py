"""`suite cancel`: cancel runs that were submitted to a cluster."""

from pathlib import Path

from suite.cli.exits import DONE, RUN_FAILED, command
from suite.cli.options.declare import argument, flag, option, submitted_runs
from suite.cli.options.reading import print_json
from suite.conduct.cluster.standing import chosen, standing
from suite.launch.cluster.registry import find_scheduler
from suite.spec.terminal import UsageError, printable, say


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
    for submission in chosen(runs, run or []):
        try:
            now = standing(runs, submission)
            if now.state.phase in ("pending", "running"):
                find_scheduler(submission.launcher).cancel(submission)
                ended.append(submission.run_id)
            elif run:
                left[submission.run_id] = f"{now.state.word} {now.state.detail}".rstrip()
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
