"""`suite compare`: two results folders, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import DONE, GATE_NOT_MET, command


@command
def compare(
    before: Annotated[Path, typer.Argument(help="results folder or bundle to compare with")],
    after: Annotated[Path, typer.Argument(help="results folder or bundle that is compared")],
    gate: Annotated[
        float | None,
        typer.Option(help="exit 3 when the whole interval of a row's ratio is below this, e.g. 0.95"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the comparison as JSON")] = False,
) -> int:
    """Compare two results folders: the second's rate over the first's, for equal backend, layout and work."""
    from suite.cli.options.reading import print_json
    from suite.report.compare import compare_entries
    from suite.report.reading import read_entries
    from suite.report.terminal import print_folder_comparison
    from suite.spec.base import UsageError

    if gate is not None and not gate > 0:
        raise UsageError(f"the gate is a share above 0, not {gate:g}")
    first, second = read_entries([before]), read_entries([after])
    result = compare_entries(first.entries, second.entries)
    missed = [row for row in result.rows if gate is not None and row.below(gate)]
    undecided = [row for row in result.rows if gate is not None and row.undecided(gate)]
    if as_json:
        reading = {"damaged": first.damaged + second.damaged, "caveats": first.warnings() + second.warnings()}
        counts = {"missed": len(missed), "undecided": len(undecided)}
        print_json({**result.model_dump(mode="json"), **counts, **reading})
    else:
        print_folder_comparison(result)
        for line in first.warnings() + second.warnings():
            typer.echo(line, err=True)
        if missed:
            typer.echo(f"{len(missed)} of {len(result.rows)} rows are below the gate of {gate:g}")
        if undecided:
            typer.echo(
                f"{len(undecided)} of {len(result.rows)} rows could be on either side of the gate of {gate:g} and "
                "pass: their runs are too few or too noisy to show which"
            )
    return GATE_NOT_MET if missed else DONE
