"""The report's pictures, as SVG whose bytes depend on the data alone."""

from importlib.util import find_spec
from pathlib import Path

from suite.report import charts
from suite.report.facts.model import ReportModel

#: Every picture that a report may have, by file stem.
NAMES = ("throughput", "scaling", "phases", "memory")


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def draw(model: ReportModel, folder: Path) -> list[Path]:
    """Write ``<name>.svg`` into ``folder`` for each picture that has data; matplotlib is imported here, not before."""
    from suite.report.plots import rows, scaling
    from suite.report.plots.style import save, styled

    with styled():
        figures = (
            rows.figure(charts.rates(model), model),
            scaling.figure(model),
            rows.figure(charts.phases(model, "share"), model),
            rows.figure(next(charts.memory(model)), model),
        )
        drawn = zip(NAMES, figures, strict=True)
        return [save(figure, folder / f"{name}.svg") for name, figure in drawn if figure is not None]
