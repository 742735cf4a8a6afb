"""The report's pictures, as SVG whose bytes depend on the data alone."""

from __future__ import annotations

from pathlib import Path

from suite.report.facts.model import ReportModel

#: Every picture that a report may have, by file stem.
NAMES = ("throughput", "predicted", "scaling", "phases", "memory")


def draw(model: ReportModel, folder: Path) -> list[Path]:
    """Write ``<name>.svg`` into ``folder`` for each picture that has data; matplotlib is imported here, not before."""
    from suite.report.plots import memory, phases, predicted, scaling, throughput
    from suite.report.plots.style import save, styled

    drawn = []
    with styled():
        for name, module in zip(NAMES, (throughput, predicted, scaling, phases, memory), strict=True):
            figure = module.figure(model)
            if figure is not None:
                drawn.append(save(figure, folder / f"{name}.svg"))
    return drawn
