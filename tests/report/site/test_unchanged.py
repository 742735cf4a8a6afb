"""A site of which nothing changed is known without a look into any bundle; whatever changes is noticed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from suite.bundle.cache.survey import survey
from suite.bundle.store import find_bundles
from suite.report.site import runs
from suite.report.site.output import WrittenSite, write_site
from tests.report.site.nights import night, nights
from tests.report.test_output import contents

RUNS, LISTED = Path("runs"), Path("out/site.json")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("suite.bundle.cache.survey.SETTLED_SECONDS", 0.0)
    nights(RUNS, [1.0] * 2, repeats=1)
    write_site(Path("out"), [RUNS])


def test_nothing_is_made_where_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(Path("out"))
    first = write_site(Path("new"), [RUNS])
    monkeypatch.setattr(runs, "gather", Mock(side_effect=AssertionError("the site was made again")))
    again = write_site(Path("out"), [])
    assert (again.read, again.written, again.kept, again.removed) == (0, 0, 4, 0)
    assert _told(again) == _told(first) and contents(Path("out")) == before


def _first() -> Path:
    return find_bundles([RUNS])[0].path


CHANGES: dict[str, Callable[[], object]] = {
    "a file less": lambda: (_first() / "environment.json").unlink(),
    "a link": lambda: (_first() / "logs" / "link").symlink_to("/etc/hostname"),
    "a damaged run": lambda: (_first() / "manifest.json").write_text("{"),
    "a run less": lambda: shutil.rmtree(_first()),
    "a run more": lambda: night(RUNS, 7, repeats=1),
    "a run elsewhere": lambda: _first().rename(RUNS / "night-001" / "moved"),
    "a page changed": lambda: (Path("out") / "index.html").write_text("changed"),
    "its list changed": lambda: LISTED.write_text(LISTED.read_text().replace('"runs": 2', '"runs": 7')),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_noticed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHANGES[change]()
    made = _remade("out", monkeypatch)
    monkeypatch.setenv("SUITE_CACHE", "off")
    anew = write_site(Path("anew"), [RUNS])
    assert _told(made) == _told(anew)
    assert contents(Path("out")) == contents(Path("anew"))


@pytest.mark.parametrize("words", [{"title": "Another"}, {"base": "https://example.org/"}])
def test_other_words_are_another_site(words: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _remade("out", monkeypatch, **words).written >= 1


def test_a_survey_finds_what_a_search_finds(tmp_path: Path) -> None:
    (RUNS / "attic" / "old").mkdir(parents=True)
    (RUNS / "attic" / "old" / "manifest.json").write_text("{}")
    (tmp_path / "link").symlink_to(RUNS)
    elsewhere = [tmp_path / "link", RUNS]
    for paths in ([RUNS], [Path(".")], elsewhere, [_first()], [RUNS / "night-001", RUNS], [Path("./runs/")]):
        found = survey(paths)[0]
        assert [one.path for one in found] == [str(bundle.path) for bundle in find_bundles(paths)] and found


def _told(done: WrittenSite) -> tuple[object, ...]:
    return done.runs, done.points, done.regressions, done.changes, done.series, done.told


def _remade(folder: str, monkeypatch: pytest.MonkeyPatch, **words: str) -> WrittenSite:
    """Of the same runs; fails where it was taken to be as it was."""
    made: list[object] = []
    gather = runs.gather
    with monkeypatch.context() as patched:
        patched.setattr(runs, "gather", lambda *asked: made.append(1) or gather(*asked))
        done = write_site(Path(folder), [RUNS], **words)
    assert made
    return done
