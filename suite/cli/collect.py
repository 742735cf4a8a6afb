"""`suite collect`: make the bundles of runs that a cluster is done with."""

from pathlib import Path

from suite.bundle.store import DamagedBundle
from suite.cli.exits import DONE, RUN_FAILED, command
from suite.cli.options.declare import argument, flag, option, submitted_runs
from suite.cli.options.handing_over import tell_network
from suite.cli.options.reading import print_json, without_collector
from suite.conduct.cluster.standing import chosen, collect_run, standing, wait_until_over, without_hopeless
from suite.conduct.running.outcome_line import outcome_line
from suite.launch.cluster.submission import SMOKE
from suite.spec.terminal import UsageError, note, printable, say


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
    for submission in chosen(runs, run or []):
        try:
            if wait:
                wait_until_over(runs, submission, lambda now: note(now.line()))
            if not run:
                now = without_hopeless(runs, standing(runs, submission))
                if now.collected:
                    continue
                if now.state.phase in ("pending", "running") or now.state.word == "rendered":
                    left[submission.run_id] = now.state.word
                    continue
            with without_collector():
                record = collect_run(runs, submission)
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
