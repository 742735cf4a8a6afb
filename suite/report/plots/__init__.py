"""The report's pictures, as SVG whose bytes depend on the data alone; those drawn before from the same figures by the
same code are kept, so that matplotlib is not even loaded."""

import hashlib
import io
import json
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.report import charts
from suite.report.facts.model import ReportModel

#: Every picture that a report may have, by file stem.
NAMES = ("throughput", "predicted", "scaling", "phases", "memory")
#: The rooms whose code a picture can depend on beside its figures.
_ROOMS = (*ROOMS, "report")
_PACKAGES = ("matplotlib", "numpy")


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def draw(model: ReportModel, folder: Path) -> list[Path]:
    """Write ``<name>.svg`` into ``folder`` for each picture that has data; matplotlib is imported here, not before."""
    from suite.report.plots import rows, scaling, throughput
    from suite.report.plots.style import save, styled

    with styled():
        figures = (
            throughput.figure(model),
            rows.figure(charts.rates(model), model),
            scaling.figure(model),
            rows.figure(charts.phases(model, "share"), model),
            rows.figure(next(charts.memory(model)), model),
        )
        drawn = zip(NAMES, figures, strict=True)
        return [save(figure, folder / f"{name}.svg") for name, figure in drawn if figure is not None]


def pictures(model: ReportModel, folder: Path) -> list[Path]:
    """As ``draw``, whose files depend on the model alone; kept beside the derived records. None without matplotlib."""
    if not can_draw():
        return []
    database = Database(cache_folder())
    try:
        if not database.is_open:
            return draw(model, folder)
        name = b"pictures " + hashlib.sha256(code_key(_ROOMS, _PACKAGES) + _figures(model)).digest()
        known = _kept(database.get(name))
        if known is None:
            drawn = draw(model, folder)
            database.put(name, json.dumps({path.stem: path.read_text(encoding="utf-8") for path in drawn}).encode())
            return drawn
        paths = []
        for stem, text in known.items():
            paths.append(folder / f"{stem}.svg")
            paths[-1].write_text(text, encoding="utf-8", newline="\n")
        return paths
    finally:
        database.close()


class _Figures(pickle.Pickler):
    """Of models their fields alone: which of them were given is a set, whose order is another in each process."""

    def reducer_override(self, value: Any) -> Any:
        return (type(value), (vars(value),)) if isinstance(value, BaseModel) else NotImplemented


def _figures(model: ReportModel) -> bytes:
    """The same bytes for what was read in the same way: equal figures that come as other bytes are drawn again."""
    written = io.BytesIO()
    _Figures(written, protocol=5).dump(model)
    return written.getvalue()


def _kept(body: bytes | None) -> dict[str, str] | None:
    """Pictures by name; null where there are none, or what was kept is something else."""
    try:
        known = None if body is None else json.loads(body)
    except ValueError:
        return None
    if not isinstance(known, dict) or not set(known) <= set(NAMES):
        return None
    return known if all(type(text) is str for text in known.values()) else None
