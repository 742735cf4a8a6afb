"""`suite verify`: derive records again and say whether they are what the bundles hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import BAD_USAGE, DONE, GATE_NOT_MET, command


@command
def verify(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE", help="bundles, or folders with bundles in them")],
    as_json: Annotated[bool, typer.Option("--json", help="print the outcome as JSON")] = False,
) -> int:
    """Derive each record again from the raw events of its bundle and show what differs.

    Exit 3 when a record differs, 2 when a bundle is damaged.
    """
    from suite.bundle.store import find_bundles
    from suite.bundle.verify import verify as derive_again
    from suite.cli.options.reading import print_json
    from suite.spec.base import UsageError, printable

    found = find_bundles(bundles)
    if not found:
        raise UsageError(f"no bundle in {', '.join(str(path) for path in bundles)}")
    checked = [(bundle.path, derive_again(bundle)) for bundle in found]
    if as_json:
        print_json([{"bundle": str(path), **result.model_dump(mode="json")} for path, result in checked])
    else:
        for path, result in checked:
            typer.echo(printable(f"{path}: {result.status}"))
            for line in result.differences:
                typer.echo(f"    {printable(line)}")
    statuses = {result.status for _, result in checked}
    if "damaged" in statuses:
        return BAD_USAGE
    return DONE if statuses == {"equal"} else GATE_NOT_MET
