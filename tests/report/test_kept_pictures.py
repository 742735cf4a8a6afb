"""Pictures are drawn once for the same figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.bundle.cache.database import Database
from suite.report.facts.model import ReportModel, build
from suite.report.plots import kept
from tests.report import entries as made


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

    monkeypatch.setattr(kept, "draw", draw)
    yield folders


def pictures(model: ReportModel, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    return {path.name: path.read_bytes() for path in kept.pictures(model, folder)}


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
def test_what_is_no_picture_is_drawn_again(
    tmp_path: Path, drawn: list[Path], body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "get", lambda self, name: body)
    assert "memory.svg" in pictures(build(made.repeats(2)), tmp_path / "a")
    assert drawn == [tmp_path / "a"] and not (tmp_path / "elsewhere").exists()


def test_without_a_cache_they_are_drawn(tmp_path: Path, drawn: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_CACHE", "off")
    model = build(made.repeats(2))
    assert pictures(model, tmp_path / "a") == pictures(model, tmp_path / "b")
    assert drawn == [tmp_path / "a", tmp_path / "b"]
