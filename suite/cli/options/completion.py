"""What the shell offers as values of options: the names in the catalogues, and runs that were submitted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer


def sizes(incomplete: str) -> list[str]:
    from suite.spec.catalogue import sizes as known

    return _starting(known(), incomplete)


def ladders(incomplete: str) -> list[str]:
    from suite.spec.catalogue import ladders as known

    return _starting(known(), incomplete)


def backends(incomplete: str) -> list[str]:
    from suite.backends.registry import backends as known

    return _starting(known(), incomplete)


def workloads(incomplete: str) -> list[str]:
    from suite.spec.catalogue import workloads as known

    return _starting(known(), incomplete)


def presets(incomplete: str) -> list[str]:
    from suite.spec.presets import presets as known

    return _starting(known(), incomplete)


def accelerators(incomplete: str) -> list[str]:
    """Names of the devices that `suite plan` knows."""
    from suite.spec.catalogue import devices as known

    return _starting(known(), incomplete)


def run_devices(incomplete: str) -> list[str]:
    """What ranks compute on."""
    return _starting(("auto", "cpu", "cuda"), incomplete)


def launchers(incomplete: str) -> list[str]:
    from suite.cli.options.launchers import LAUNCHERS

    return _starting(LAUNCHERS, incomplete)


def submitted_runs(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the runs that were submitted from the results folder of the same command line; no cluster is asked."""
    from suite.launch.cluster.submission import FOLDER

    root = Path(context.params.get("runs") or "runs")
    try:
        names = sorted(path.stem for path in (root / FOLDER).glob("*.json") if not path.name.startswith("."))
    except OSError:
        return []
    already = context.params.get("run") or ()
    return [name for name in _starting(names, incomplete) if name not in already]


def runs_of_any_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of runs that have a bundle in the results folder of the same command line, or were submitted from it."""
    from suite.conduct.cluster.logs import known_runs

    return _starting(known_runs(Path(context.params.get("runs") or "runs")), incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    """The names that continue what was typed, in any case."""
    return [name for name in names if name.lower().startswith(incomplete.lower())]
