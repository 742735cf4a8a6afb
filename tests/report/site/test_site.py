"""`suite site`: what is one series, what is told of a change, and what is written again."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from suite.bundle.archive.opening import Opened
from suite.bundle.archive.packing import Packing, pack
from suite.bundle.cache.survey import survey
from suite.bundle.store import Bundle
from suite.report.site import pages as pages_of_a_site
from suite.report.site.history import histories
from suite.report.site.runs import gather
from suite.spec.layout import Layout
from suite.stats.compare import compare
from tests import command
from tests.command import refused
from tests.report.parsed import Parsed
from tests.report.site.nights import DAY, night, nights
from tests.synthetic import BEGAN, GPT, SMOKE, facts_of, synthetic_manifest

ATOM = "{http://www.w3.org/2005/Atom}"
told = partial(command.told, "site")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("suite.bundle.cache.survey.SETTLED_SECONDS", 0.0)


def pages(folder: str) -> dict[str, str]:
    root = Path(folder)
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def page_of(series: dict[str, Any]) -> str:
    return (Path("out") / "series" / f"{series['id']}.html").read_text()


def words_of(text: str) -> str:
    return " ".join(" ".join(Parsed(text).text).split())


def test_a_loss_is_told_with_its_place_its_size_and_what_was_changed() -> None:
    nights(Path("runs"), [1.0] * 10 + [1.1] * 4, ["a" * 40] * 10 + ["b" * 40] * 4, repeats=1)
    found = told("out", "--from", "runs")
    (series,) = found["series"]
    (change,) = series["changes"]
    assert (series["points"], series["runs"], found["regressions"]) == (14, 14, 1)
    assert (change["direction"], change["begins"]["folder"]) == ("slower", "runs/night-010")
    assert change["ratio"]["low"] < 1 / 1.1 < change["ratio"]["high"] < 0.95
    assert change["versions"] == [["suite's commit", "a" * 12, "b" * 12]]
    page = page_of(series)
    words = words_of(page)
    assert "slower since 2023-11-24" in words and "suite's commit aaaaaaaaaaaa bbbbbbbbbbbb" in words
    assert "generate" in words and page.count('class="point"') == 14


def test_nights_of_suspect_runs_alone_are_listed_and_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.report.site.runs.is_suspect", lambda record: record.run.started > BEGAN + 9.5 * DAY)
    nights(Path("runs"), [1.0] * 10 + [1.3] * 4, repeats=1)
    found = told("out", "--from", "runs")
    (series,) = found["series"]
    assert (found["regressions"], series["points"], series["runs"]) == (0, 10, 14)
    assert [page_of(series).count(text) for text in ("(suspect)", 'class="point"')] == [4, 10]


def test_intervals_of_two_points_are_those_of_python_and_of_no_more_points_than_a_page_can_hold(monkeypatch):
    nights(Path("runs"), [1.0, 1.1, 1.2], repeats=3)
    folder = Path("runs")
    (series,) = histories(gather(survey([folder])[0], Opened((folder,))).runs, {folder: "runs"})
    first, last = series.points[0], series.points[-1]
    expected = compare(first.measured, last.measured).ratio
    for folder, most, pairs in (("out", pages_of_a_site._MOST_PAIRS, 6), ("few", 2, 3)):
        monkeypatch.setattr(pages_of_a_site, "_MOST_PAIRS", most)
        told(folder, "--from", "runs")
        data = json.loads(re.findall(r'id="data"[^>]*>(.*?)</script>', Path(folder, "compare.html").read_text())[0])
        assert len(data["intervals"]) == pairs
        if folder == "out":
            assert data["intervals"][f"{first.id} {last.id}"] == pytest.approx([expected.low, expected.high], rel=1e-4)


def test_the_feed_is_atom_and_tells_of_losses_alone() -> None:
    nights(Path("runs"), [1.0] * 6 + [1.2] * 5 + [0.9] * 5, repeats=1)
    found = told("out", "--from", "runs", "--url", "https://example.org/bench")
    assert [one["direction"] for one in found["series"][0]["changes"]] == ["slower", "faster"]
    root = ElementTree.parse("out/feed.xml").getroot()
    (entry,) = root.findall(f"{ATOM}entry")
    assert root.get("{http://www.w3.org/XML/1998/namespace}base") == "https://example.org/bench/"
    for one in (root, entry):
        assert all(one.find(f"{ATOM}{name}") is not None for name in ("id", "title", "updated"))
    link = entry.find(f"{ATOM}link")
    assert link is not None and entry.findtext(f"{ATOM}updated") == "2023-11-20T22:13:20Z"
    page, _, anchor = str(link.get("href")).partition("#")
    assert any(attributes.get("id") == anchor for _, attributes in Parsed((Path("out") / page).read_text()).elements)
    before = entry.findtext(f"{ATOM}id")
    night(Path("runs"), 16, 0.9, repeats=1)
    told("out")
    assert ElementTree.parse("out/feed.xml").getroot().findtext(f"{ATOM}entry/{ATOM}id") == before


def test_other_work_other_layouts_and_other_machines_are_other_series() -> None:
    root = Path("runs")
    alike = synthetic_manifest()
    machine = {**facts_of(alike), "cpu": {"model": "Other CPU", "cores": 8, "threads": 16}}
    unlike = (
        {},
        {"workload": SMOKE.model_copy(update={"new_tokens": 16})},
        {"layout": Layout(devices_per_node=1, data=1, zero_stage=3)},
        {"backend": "megatron"},
        {"precision": "bf16"},
        {"facts": machine},
        {"iterations": 10},
        {"size": GPT.model_copy(update={"vocab": 1024})},
    )
    for number, asked in enumerate(unlike):
        night(root / "a", number, repeats=1, **asked)
    night(root / "b", 9, repeats=1)
    found = told("out", "--from", "runs")
    counts = sorted(one["points"] for one in found["series"])
    assert counts == [1, 1, 1, 1, 1, 1, 3], "the same work longer measured, and another folder, are the same series"
    works = {one["facts"]["work"] for one in found["series"]}
    assert len(works) == 4, "of equal work are the other layout, the other backend and the other machine"


def test_a_night_more_is_read_alone_and_pages_of_what_is_gone_are_removed() -> None:
    nights(Path("runs"), [1.0] * 3, repeats=1)
    gone = nights(Path("runs"), [0.5] * 3, repeats=1, backend="megatron")
    assert told("out", "--from", "runs")["pages"] == {"written": 5, "kept": 0, "removed": 0}
    night(Path("runs"), 3, repeats=1)
    more = told("out")
    assert (more["runs_read"], more["runs"]) == (1, 7)
    assert more["pages"]["kept"] == 2, "the page of the other series and the feed"
    for path in gone:
        shutil.rmtree(path)
    assert told("out")["pages"]["removed"] == 1 and len(list(Path("out/series").iterdir())) == 1


def test_failed_runs_are_shown_and_copies_and_runs_under_way_are_left_out() -> None:
    paths = nights(Path("runs"), [1.0] * 2)
    failure = {"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["x"]}
    night(Path("runs"), 2, repeats=1, failure=failure)
    shutil.copytree(paths[0], Path("runs/night-000/copy"))
    with Bundle(paths[-1]).hold():
        found = told("out", "--from", "runs")
    (series,) = found["series"]
    assert (found["runs"], series["points"], series["runs"]) == (7, 2, 7)
    assert "the same run as" in "".join(found["told"]) and "still being run" in "".join(found["told"])
    page, words = page_of(series), words_of(page_of(series))
    assert "1 failed (oom_device in train)" in words and "0 of 1" in words and "1 left out" in words
    assert page.count('class="point"') == 2
    assert told("out")["runs"] == 8


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 1234*5678 }}\u202e\x1b[2J"


def test_hostile_words_are_shown_and_nothing_more() -> None:
    manifest = synthetic_manifest(size=GPT.model_copy(update={"name": HOSTILE[:60]}))
    facts = {**facts_of(manifest), "cpu": {"model": HOSTILE, "cores": 2, "threads": 2}, "kernel": HOSTILE}
    root = Path("runs<b>&\u202e")
    for number in range(3):
        night(root, number, manifest=manifest, repeats=1, facts=facts, commit=HOSTILE)
    told("out", "--from", str(root), "--title", HOSTILE)
    for name, text in pages("out").items():
        assert "\u202e" not in text and "\x1b" not in text, name
        if name == "site.json":
            continue
        if name.endswith(".xml"):
            assert {element.tag.removeprefix(ATOM) for element in ElementTree.fromstring(text).iter()} <= {
                *("feed", "title", "id", "updated", "author", "name", "generator", "link", "entry", "content")
            }
            continue
        parsed = Parsed(text)
        scripts = [attributes for tag, attributes in parsed.elements if tag == "script"]
        assert scripts in ([{}], [{"type": "application/json", "id": "data"}, {}]), name
        assert not [tag for tag, _ in parsed.elements if tag in ("img", "b", "iframe", "object")]
        names = {name for _, attributes in parsed.elements for name in attributes}
        assert not [name for name in names if name.startswith("on") or name == "style"]
        assert "7006652" not in "".join(parsed.text[:40]) and "{{" in text


def test_a_page_loads_nothing_and_runs_its_own_script_alone() -> None:
    nights(Path("runs"), [1.0] * 2)
    told("out", "--from", "runs")
    for name, text in pages("out").items():
        if not name.endswith(".html"):
            continue
        tags = Parsed(text).elements
        policy = next(str(one["content"]) for _, one in tags if one.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text) and "url(" not in text
        links = [one["href"] for tag, one in tags if tag in ("a", "link")]
        folder = (Path("out") / name).parent
        for link in links:
            path, _, anchor = str(link).partition("#")
            assert not path or (folder / path).is_file(), link
            assert path or any(one.get("id") == anchor for _, one in tags), link


@pytest.mark.slow
def test_an_archive_is_read_as_the_folder_that_it_holds_and_no_page_tells_where_results_lie(tmp_path: Path) -> None:
    secret = tmp_path / "secret" / "runs"
    nights(secret, [1.0] * 8 + [0.7] * 8, repeats=1)
    pack(secret, Path("nights.suite.zip"), Packing())
    of_folder, of_archive = told("out", "--from", str(secret)), told("other", "--from", "nights.suite.zip")
    assert [len(one["changes"]) for one in of_archive["series"]] == [len(one["changes"]) for one in of_folder["series"]]
    assert of_archive["runs"] == of_folder["runs"] == 16
    before = pages("other")
    everything = "".join([*before.values(), *pages("out").values()])
    assert "nights.suite.zip" in everything and "suite-archive-" not in everything
    assert "secret" not in everything and str(tmp_path) not in everything
    assert told("other")["runs"] == 16 and pages("other") == before, "it is remembered by its name"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["out"], "which results?"),
        (["out", "--from", "nowhere"], "cannot read nowhere"),
        (["out", "--from", "empty"], "no run to show in empty"),
        (["full", "--from", "runs"], "holds something else than a site"),
        (["file", "--from", "runs"], "holds something else than a site"),
        (["out", "--from", "runs", "--url", "javascript:alert(1)"], "--url is an address"),
        (["newer", "--from", "runs"], "is of the schema 'suite/site/99'"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(words: list[str], message: str) -> None:
    night(Path("runs"), 0, repeats=1)
    for folder in ("empty", "full", "newer"):
        Path(folder).mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    Path("newer/site.json").write_text('{"schema": "suite/site/99"}')
    assert message in refused("site", *words)
    assert not Path("out").exists() and [one.name for one in Path("full").iterdir()] == ["mine.txt"]


def test_title_and_address_stay_where_nothing_is_kept_of_the_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    nights(Path("runs"), [1.0] * 2)
    told("out", "--from", "runs", "--title", "Ours", "--url", "https://bench.example.org/")
    pages = {path: path.read_text() for path in Path("out").rglob("*.html")}
    monkeypatch.setenv("SUITE_CACHE", "off")
    told("out", "--from", "runs")
    assert {path: path.read_text() for path in Path("out").rglob("*.html")} == pages and "Ours" in "".join(
        pages.values()
    )


def test_files_that_are_no_pages_of_a_site_stay() -> None:
    nights(Path("runs"), [1.0] * 2)
    told("out", "--from", "runs")
    mine = Path("out/series/mine.html")
    mine.write_text("mine")
    assert told("out")["pages"]["removed"] == 0 and mine.exists()
