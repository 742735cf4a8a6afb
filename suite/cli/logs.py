"""`suite logs`: the last lines that a run printed, wherever it runs or ran."""

from pathlib import Path

from suite.cli.command import argument, command, flag, option, runs_of_any_kind
from suite.conduct.cluster.logs import follow_log
from suite.launch.stream import shown
from suite.spec.terminal import UsageError, note, say


@command()
def logs(
    run: str = argument("run id, or a bundle's folder", autocompletion=runs_of_any_kind),
    follow: bool = flag("go on until the run is over", "--follow", "-f"),
    lines: int = option("last lines of each log to begin with", 40, "--lines", "-n", min=1, max=10_000),
    only: str | None = option("one log alone, e.g. rank-0, node-1 or slurm [default: all]", metavar="LOG"),
    runs: Path = option("results folder", Path("runs")),
) -> None:
    """Show the last lines that a run printed: of a local or Docker run, of one on a cluster, of a bundle.

    Events are left out, and whatever a terminal would obey.
    """
    seen: set[str] = set()

    def show(stream: str, found: list[bytes]) -> None:
        seen.add(stream)
        if only is None or stream == only:
            for line in found:
                say(f"{stream} | {shown(line)}" if only is None else shown(line))

    follow_log(runs, run, lines, follow, show, note)
    if only is not None and only not in seen:
        known = f"; it has {', '.join(sorted(seen))}" if seen else ""
        raise UsageError(f"{run} has no log {only!r} (yet){known}")
