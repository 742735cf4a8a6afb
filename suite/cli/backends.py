"""`suite backends`: the stacks that can be measured."""

from __future__ import annotations

import sys
from typing import Annotated, Optional

import typer

from suite.cli.exits import command


@command
def backends(
    python: Annotated[Optional[str], typer.Option(help="interpreter that holds the stacks [default: this one]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> None:
    """List the backends, what each needs, and the versions found."""
    from suite.backends.registry import backends as known
    from suite.cli.options import print_json
    from suite.launch.probe import stack_versions

    rows = []
    for driver in known().values():
        rows.append(
            {
                "name": driver.name,
                "kind": driver.kind,
                "summary": driver.summary,
                "settings": list(driver.settings),
                "packages": dict(stack_versions(python or sys.executable, driver.packages)),
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        found = ", ".join(f"{name} {version or 'missing'}" for name, version in row["packages"].items())
        typer.echo(f"{row['name']:<12} {row['kind']:<8} {row['summary']}\n{'':12} {found}")
