"""Pictures: what is drawn, what is left out and said, and each drawn once."""

import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.bundle.cache.database import Database
from suite.report import plots
from suite.report.facts.model import ReportModel, build
from suite.report.plots import draw
from tests.report import entries as made
from tests.report.reports import hostile

CASES = {
    "single": (lambda: [made.entry()], ["throughput", "phases", "memory"]),
    "foretold": (
        lambda: [made.recorded(made.entry(), predicted={"samples_per_second": 21.5, "low": 18.0, "high": 25.0})],
        ["throughput", "predicted", "phases", "memory"],
    ),
    "1M to 66B": (
        lambda: made.matrix(sizes=("1M", "66B"), ranks=(1, 16), runs=1),
        ["throughput", "scaling", "phases", "memory"],
    ),
    "hostile": (hostile, ["throughput", "scaling", "phases", "memory"]),
    "no interval": (lambda: made.repeats(1, iterations=1), ["throughput", "phases", "memory"]),
    "all failed": (lambda: [made.failed()], []),
    "nothing": (list, []),
}


def texts(path: Path) -> list[str]:
    """What matplotlib wrote as glyphs; it leaves each text beside them as a comment."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_picture_with_data_is_drawn_without_a_warning(name: str, tmp_path: Path) -> None:
    entries, expected = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw(build(entries()), tmp_path)
    assert [path.stem for path in drawn] == expected
    for path in drawn:
        root = ElementTree.fromstring(path.read_bytes())
        assert not [tag for tag in root.iter() if tag.tag.endswith(("script", "foreignObject", "image"))]


@pytest.mark.slow
def test_what_is_left_out_of_a_picture_is_said(tmp_path: Path) -> None:
    many = made.matrix(sizes=("1M", "3M", "8M", "25M", "1.3B", "6.7B"), ranks=(1, 2, 4, 8, 16, 32), runs=1)
    draw(build(many), tmp_path)
    assert "24 of 72 rows drawn, fastest layouts first; all are in the table." in texts(tmp_path / "phases.svg")
    assert "Not drawn: 2 rank counts; all rows are in the table." in texts(tmp_path / "throughput.svg")
    assert "Not drawn: 2 sizes; all rows are in the table." in texts(tmp_path / "scaling.svg")


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The folders that something was really drawn into."""
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    folders: list[Path] = []

    def draw(model: ReportModel, folder: Path) -> list[Path]:
        """A text in the place of a picture, which tests of pictures draw."""
        folders.append(folder)
        path = folder / "memory.svg"
        path.write_text(f"<svg>{model.rows[0].iteration_seconds}</svg>")
        return [path]

    monkeypatch.setattr(plots, "draw", draw)
    yield folders


def pictures(model: ReportModel, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    return {path.name: path.read_bytes() for path in plots.pictures(model, folder)}


def test_the_same_figures_are_drawn_once_and_others_again(tmp_path: Path, drawn: list[Path]) -> None:
    model = build(made.repeats(2))
    first, again = pictures(model, tmp_path / "a"), pictures(build(made.repeats(2)), tmp_path / "b")
    assert first == again and first
    assert sorted(again) == sorted(path.name for path in (tmp_path / "b").iterdir())
    assert drawn == [tmp_path / "a"]
    other = pictures(build(made.repeats(2, rate=21.0)), tmp_path / "c")
    assert drawn == [tmp_path / "a", tmp_path / "c"]
    assert other != first


@pytest.mark.parametrize("body", [b"", b"{", b'{"../elsewhere": "text"}', b'{"memory": 1}'])
def test_what_is_no_picture_is_drawn_again(tmp_path, drawn, body, monkeypatch):
    monkeypatch.setattr(Database, "get", lambda self, name: body)
    assert "memory.svg" in pictures(build(made.repeats(2)), tmp_path / "a")
    assert drawn == [tmp_path / "a"] and not (tmp_path / "elsewhere").exists()
