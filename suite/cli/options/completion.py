"""What the shell offers as values of options: the names in the catalogues, and runs that were submitted."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import typer

Completion = Callable[[str], list[str]]


def _names(module: str, table: str) -> Completion:
    """Names of a table of the suite, which is imported when a shell asks."""

    def offered(incomplete: str) -> list[str]:
        known = getattr(import_module(f"suite.{module}"), table)
        return _starting(known() if callable(known) else known, incomplete)

    return offered


sizes, ladders, workloads = (_names("spec.catalogue", table) for table in ("sizes", "ladders", "workloads"))
#: devices that `suite plan` knows
accelerators = _names("spec.catalogue", "devices")
presets = _names("spec.catalogue", "presets")
backends = _names("backends.registry", "backends")
launchers = _names("cli.options.launchers", "LAUNCHERS")


def words(*known: str) -> Completion:
    """These, of an option that has no others."""
    return lambda incomplete: _starting(known, incomplete)


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
