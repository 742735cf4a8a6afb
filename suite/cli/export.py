"""`suite export`: measured runs as a table that other tools read."""

from pathlib import Path

from suite.cli.command import argument, command, option
from suite.cli.output import STANDARD_OUTPUT, answer, is_json, without_collector, written_to
from suite.export.export import export_file, export_to
from suite.spec.terminal import UsageError, note, printable


@command("print what was written as JSON")
def export(
    runs: list[Path] = argument("results folders, single bundles, or files of suite pack"),
    output: Path = option(
        "file to write, whose name ends in .parquet, .csv, .jsonl or .prom (OpenMetrics), or - to print "
        "CSV; with --to a folder",
        ...,
        "--output",
        "-o",
    ),
    table: str = option(
        "one row a run, a phase of a run, an iteration, or an imported log",
        "runs",
        metavar="runs|phases|iterations|imported",
    ),
    to: str | None = option(
        "write a folder of this tool instead, without any network", metavar="wandb|mlflow|tensorboard"
    ),
) -> None:
    """Export runs as rows: to Parquet, CSV, JSON Lines or OpenMetrics, or to W&B, MLflow or TensorBoard.

    Failed, suspect and interrupted runs are rows too, with their status and the reasons. docs/export.md has the
    columns.
    """
    with without_collector():
        if to is not None:
            if table != "runs":
                raise UsageError("--table chooses the rows of a file: --to writes runs, phases and iterations together")
            done = export_to(to, runs, output)
        else:
            with written_to(output, ".csv") as path:
                done = export_file(runs, path, table)
    for line in () if is_json() else done.warnings:
        note(line)
    wrote = [] if output == STANDARD_OUTPUT else [printable(f"wrote {done.path}: {done.summary}")]
    answer(done.as_json(), wrote)
