"""`suite backends`: the stacks that can be measured."""

from __future__ import annotations

from typing import Annotated

import typer

from suite.cli.exits import command
from suite.cli.options.reading import Python
from suite.spec.terminal import say


@command
def backends(
    python: Python = None,
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> None:
    """List the backends, the packages that each needs, and the versions installed."""
    from suite.backends.base import experimental
    from suite.backends.interpreters import read_interpreters
    from suite.backends.registry import backends as known
    from suite.cli.options.reading import print_json
    from suite.launch.probe import stack_versions

    asked = read_interpreters(python or ())
    found = [(driver, stack_versions(asked.of(name), driver.packages)) for name, driver in known().items()]
    if as_json:
        facts = ("name", "kind", "summary", "settings")
        print_json(
            [
                {
                    **{fact: getattr(driver, fact) for fact in facts},
                    "experimental": experimental(driver),
                    "packages": has,
                }
                for driver, has in found
            ]
        )
        return
    for driver, has in found:
        packages = ", ".join(f"{name} {version or 'missing'}" for name, version in has.items())
        state = experimental(driver)
        warning = f" (experimental: {state})" if state else ""
        say(f"{driver.name:<12} {driver.kind:<8} {driver.summary}{warning}\n{'':12} {packages}")
