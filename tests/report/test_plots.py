"""Pictures: what is drawn and what is left out and said."""

import re
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from suite.report.facts.model import build
from suite.report.plots import draw
from tests.report import entries as made
from tests.report.reports import hostile

CASES = {
    "single": (lambda: [made.entry()], ["throughput", "phases", "memory"]),
    "foretold": (
        lambda: [made.recorded(made.entry(), predicted={"samples_per_second": 21.5, "low": 18.0, "high": 25.0})],
        ["throughput", "phases", "memory"],
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
    for name in ("phases", "throughput"):
        assert "24 of 72 rows drawn, fastest layouts first; all are in the table." in texts(tmp_path / f"{name}.svg")
    assert "8 of 12 curves drawn; all are in the table." in texts(tmp_path / "scaling.svg")


@pytest.mark.slow
def test_a_row_without_a_rate_is_among_those_with_one_and_says_why(tmp_path: Path) -> None:
    draw(build([made.entry(), made.failed(backend="megatron")]), tmp_path)
    assert {"failed", "R2  1M  megatron  1 rank"} <= set(texts(tmp_path / "throughput.svg"))
