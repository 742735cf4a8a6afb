"""`suite status`: how far the runs are that were submitted to clusters."""

from pathlib import Path

from suite.cli.exits import DONE, RUN_FAILED, command
from suite.cli.options.declare import argument, flag, option, submitted_runs
from suite.cli.options.reading import print_json
from suite.conduct.cluster.standing import asked, chosen, standing
from suite.spec.terminal import say


@command
def status(
    run: list[str] | None = argument("run ids [default: all that were submitted]", None, autocompletion=submitted_runs),
    runs: Path = option("results folder", Path("runs")),
    as_json: bool = flag("print as JSON", "--json"),
) -> int:
    """Show how far each run is that a cluster was given, and why it waits. Exit 1 when one could not be asked."""
    ask = standing if run and len(run) == 1 else asked
    rows = [ask(runs, submission) for submission in chosen(runs, run or [])]
    if as_json:
        print_json(
            [
                {
                    "run": row.submission.run_id,
                    "launcher": row.submission.launcher,
                    "submitted": row.submission.submitted,
                    "engine": row.submission.scheduler,
                    "collected": row.collected,
                    **row.state.model_dump(mode="json"),
                }
                for row in rows
            ]
        )
    elif not rows:
        say(f"nothing was submitted to a cluster from {runs}")
    for row in () if as_json else rows:
        say("  ".join(filter(None, (row.submission.run_id, row.state.word, row.state.detail))))
    return RUN_FAILED if any(row.state.phase == "unknown" for row in rows) else DONE
