"""`suite clean`: remove what is left of runs that were collected from a cluster."""

from pathlib import Path

from suite.cli.exits import DONE, command
from suite.cli.options.declare import flag, option
from suite.cli.options.reading import confirmed, print_json, seconds
from suite.conduct.cluster.cleaning import leftovers, remove
from suite.spec.terminal import UsageError, say


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
            remove(each)
        if not as_json:
            say(f"removed {total / 2**20:.1f} MiB of {len(found.removable)} runs")
    if as_json:
        print_json({**found.model_dump(mode="json"), "bytes": total, "removed": removed})
    return DONE
