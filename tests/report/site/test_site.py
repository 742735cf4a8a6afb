"""`suite site`: what is one series, what is told of a change, and what is written again."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

import suite.bundle.cache.cores as cores
from suite.bundle.archive.packing import Packing, pack
from suite.bundle.store import Bundle
from suite.cli.app import app
from suite.report.site.output import write_site
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from tests.report.site.nights import night, nights
from tests.synthetic import GPT, SMOKE, facts_of, synthetic_manifest

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("suite.bundle.cache.signature.SETTLED_SECONDS", 0.0)


def site(*words: str) -> Result:
    return CliRunner().invoke(app, ["site", *words])


def told(*words: str) -> dict[str, Any]:
    done = site(*words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Words(HTMLParser):
    """Text, and every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def pages(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_loss_is_told_with_its_place_its_size_and_what_was_changed() -> None:
    nights(Path("runs"), [1.0] * 10 + [1.1] * 4, ["a" * 40] * 10 + ["b" * 40] * 4, repeats=2)
    found = told("out", "--from", "runs")
    (series,) = found["series"]
    (change,) = series["changes"]
    assert (series["points"], series["runs"], found["regressions"]) == (14, 28, 1)
    assert (change["direction"], change["begins"]["folder"]) == ("slower", "runs/night-010")
    assert change["ratio"]["low"] < 1 / 1.1 < change["ratio"]["high"] < 0.95
    assert change["versions"] == [["suite's commit", "a" * 12, "b" * 12]]
    page = (Path("out") / "series" / f"{series['id']}.html").read_text()
    words = " ".join(" ".join(Words(page).words).split())
    assert "slower since 2023-11-24" in words and "suite's commit aaaaaaaaaaaa bbbbbbbbbbbb" in words
    assert "generate" in words and page.count('class="point"') == 14


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
    assert any(attributes.get("id") == anchor for _, attributes in Words((Path("out") / page).read_text()).tags)
    before = entry.findtext(f"{ATOM}id")
    night(Path("runs"), 16, 0.9, repeats=1)
    told("out")
    assert ElementTree.parse("out/feed.xml").getroot().findtext(f"{ATOM}entry/{ATOM}id") == before


def test_other_work_other_layouts_and_other_machines_are_other_series() -> None:
    root = Path("runs")
    alike = synthetic_manifest()
    machine = {**facts_of(alike), "cpu": {"model": "Other CPU", "cores": 8, "threads": 16}}
    night(root / "a", 0)
    night(root / "b", 1)
    night(root / "a", 2, workload=SMOKE.model_copy(update={"new_tokens": 16}))
    night(root / "a", 3, layout=Layout(devices_per_node=1, data=1, zero_stage=3))
    night(root / "a", 4, backend="megatron")
    night(root / "a", 5, precision="bf16")
    night(root / "a", 6, facts=machine)
    night(root / "a", 7, iterations=10)
    night(root / "a", 8, size=GPT.model_copy(update={"vocab": 1024}))
    found = told("out", "--from", "runs")
    counts = sorted(one["points"] for one in found["series"])
    assert counts == [1, 1, 1, 1, 1, 1, 3], "the same work longer measured, and another folder, are the same series"
    works = {one["facts"]["work"] for one in found["series"]}
    assert len(works) == 4, "of equal work are the other layout, the other backend and the other machine"


def test_the_same_again_reads_and_writes_nothing_and_a_night_more_adds_its_own() -> None:
    nights(Path("runs"), [1.0] * 6, repeats=1)
    nights(Path("runs"), [0.5] * 6, repeats=1, backend="megatron")
    first = told("out", "--from", "runs")
    assert (first["runs_read"], first["pages"]) == (12, {"written": 5, "kept": 0, "removed": 0})
    before = pages(Path("out"))
    again = told("out")
    assert (again["runs_read"], again["pages"]) == (0, {"written": 0, "kept": 5, "removed": 0})
    assert pages(Path("out")) == before
    night(Path("runs"), 6, repeats=1)
    more = told("out")
    assert (more["runs_read"], more["runs"]) == (1, 13)
    after = pages(Path("out"))
    untouched = [name for name in before if name.startswith("series/") and before[name] == after[name]]
    assert len(untouched) == 1 and more["pages"]["kept"] >= 1
    shutil.rmtree("cache")
    anew = told("new", "--from", "runs")
    assert anew["runs_read"] == 13
    assert {name: text for name, text in pages(Path("new")).items() if name != "site.json"} == {
        name: text for name, text in after.items() if name != "site.json"
    }


def test_a_page_that_somebody_changed_is_written_again_and_one_of_no_series_is_removed() -> None:
    nights(Path("runs"), [1.0] * 2)
    gone = night(Path("runs"), 3, backend="megatron")
    found = told("out", "--from", "runs")
    before = pages(Path("out"))
    (Path("out") / "index.html").write_text("changed")
    assert told("out")["pages"]["written"] == 1 and pages(Path("out")) == before
    for path in gone:
        shutil.rmtree(path)
    assert told("out")["pages"]["removed"] == 1
    assert len(list(Path("out/series").iterdir())) == len(found["series"]) - 1


def test_read_on_all_cores_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    nights(Path("runs"), [1.0] * 4)
    broken = night(Path("runs"), 5)[0]
    (broken / "manifest.json").write_text("{")
    told("one", "--from", "runs")
    shutil.rmtree("cache")
    monkeypatch.setattr(cores, "MANY", 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    found = told("two", "--from", "runs")
    assert pages(Path("one")) == pages(Path("two"))
    assert len(found["told"]) == 1 and "left out, damaged" in found["told"][0]


def test_failed_runs_are_shown_where_they_belong() -> None:
    nights(Path("runs"), [1.0] * 3)
    night(
        Path("runs"),
        3,
        repeats=1,
        failure={"failure": "oom_device", "phase": "train", "iteration": 1, "evidence": ["x"]},
    )
    found = told("out", "--from", "runs")
    (series,) = found["series"]
    assert (series["points"], series["runs"]) == (3, 10)
    words = " ".join(Words((Path("out") / "series" / f"{series['id']}.html").read_text()).words)
    assert "1 failed (oom_device in train)" in words and "0 of 1" in words


def test_a_copy_of_a_run_is_no_run() -> None:
    paths = nights(Path("runs"), [1.0] * 2)
    shutil.copytree(paths[0], Path("runs/night-000/copy"))
    found = told("out", "--from", "runs")
    assert found["series"][0]["runs"] == 7 and "the same run as" in found["told"][0]
    page = (Path("out") / "series" / f"{found['series'][0]['id']}.html").read_text()
    assert page.count('class="point"') == 2 and "1 left out" in page


def test_a_run_that_is_under_way_is_left_out() -> None:
    path = nights(Path("runs"), [1.0] * 2)[0]
    with Bundle(path).hold():
        found = told("out", "--from", "runs")
    assert found["runs"] == 5 and "still being run" in found["told"][0]
    assert told("out")["runs"] == 6


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7*7 }}\u202e\x1b[2J"


def test_hostile_words_are_shown_and_nothing_more() -> None:
    manifest = synthetic_manifest(size=GPT.model_copy(update={"name": HOSTILE[:60]}))
    facts = {**facts_of(manifest), "cpu": {"model": HOSTILE, "cores": 2, "threads": 2}, "kernel": HOSTILE}
    root = Path("runs<b>&\u202e")
    for number in range(3):
        night(root, number, manifest=manifest, repeats=1, facts=facts, commit=HOSTILE)
    told("out", "--from", str(root), "--title", HOSTILE)
    for name, text in pages(Path("out")).items():
        assert "\u202e" not in text and "\x1b" not in text, name
        if name == "site.json":
            continue
        if name.endswith(".xml"):
            assert {element.tag.removeprefix(ATOM) for element in ElementTree.fromstring(text).iter()} <= {
                *("feed", "title", "id", "updated", "author", "name", "generator", "link", "entry", "content")
            }
            continue
        parsed = Words(text)
        scripts = [attributes for tag, attributes in parsed.tags if tag == "script"]
        assert scripts in ([{}], [{"type": "application/json", "id": "data"}, {}]), name
        assert not [tag for tag, _ in parsed.tags if tag in ("img", "b", "iframe", "object")]
        assert not [
            key for _, attributes in parsed.tags for key in attributes if key.startswith("on") or key == "style"
        ]
        assert "49" not in "".join(parsed.words[:40]) and "{{" in text


def test_a_page_loads_nothing_and_runs_its_own_script_alone() -> None:
    nights(Path("runs"), [1.0] * 2)
    told("out", "--from", "runs")
    for name, text in pages(Path("out")).items():
        if not name.endswith(".html"):
            continue
        tags = Words(text).tags
        policy = next(str(one["content"]) for _, one in tags if one.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text) and "url(" not in text
        links = [one["href"] for tag, one in tags if tag in ("a", "link")]
        folder = (Path("out") / name).parent
        for link in links:
            path, _, anchor = str(link).partition("#")
            assert not path or (folder / path).is_file(), link
            assert path or any(one.get("id") == anchor for _, one in tags), link


def test_pages_do_not_tell_where_results_lie(tmp_path: Path) -> None:
    nights(tmp_path / "secret" / "runs", [1.0] * 2)
    told("out", "--from", str(tmp_path / "secret" / "runs"))
    for name, text in pages(Path("out")).items():
        assert "secret" not in text and str(tmp_path) not in text, name


def test_an_archive_is_read_as_the_folder_that_it_holds(tmp_path: Path) -> None:
    nights(Path("runs"), [1.0] * 8 + [0.7] * 8)
    pack(Path("runs"), Path("nights.suite.zip"), Packing())
    of_folder, of_archive = told("out", "--from", "runs"), told("other", "--from", "nights.suite.zip")
    assert [len(one["changes"]) for one in of_archive["series"]] == [len(one["changes"]) for one in of_folder["series"]]
    assert of_archive["runs"] == of_folder["runs"] == 48
    everything = "".join(pages(Path("other")).values())
    assert "nights.suite.zip" in everything and "suite-archive-" not in everything and str(tmp_path) not in everything
    before = pages(Path("other"))
    assert told("other")["runs"] == 48 and pages(Path("other")) == before, "it is remembered by its name"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["out"], "which results?"),
        (["out", "--from", "nowhere"], "cannot read nowhere"),
        (["out", "--from", "empty"], "no run to show in empty"),
        (["full", "--from", "runs"], "holds something else than a site"),
        (["file", "--from", "runs"], "file is not a folder"),
        (["out", "--from", "runs", "--url", "javascript:alert(1)"], "--url is an address"),
        (["newer", "--from", "runs"], "is of schema 'suite/site/99'"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(words: list[str], message: str) -> None:
    night(Path("runs"), 0, repeats=1)
    Path("empty").mkdir()
    Path("full").mkdir()
    Path("full/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    Path("newer").mkdir()
    Path("newer/site.json").write_text('{"schema": "suite/site/99"}')
    done = site(*words)
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1
    assert not Path("out").exists() and [one.name for one in Path("full").iterdir()] == ["mine.txt"]


def test_names_in_a_list_that_somebody_changed_remove_nothing() -> None:
    nights(Path("runs"), [1.0] * 2)
    told("out", "--from", "runs")
    mine = Path("mine.txt")
    mine.write_text("mine")
    listed = Path("out/site.json")
    body = json.loads(listed.read_text())
    body["pages"] |= {"../mine.txt": {"made_of": "", "text": ""}, "series": 3, "../runs": None}
    listed.write_text(json.dumps(body))
    assert told("out")["pages"]["removed"] == 0 and mine.exists()


def test_without_a_cache_all_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_CACHE", "off")
    nights(Path("runs"), [1.0] * 2)
    for _ in range(2):
        assert told("out", "--from", "runs")["runs_read"] == 6
    with pytest.raises(UsageError, match="which results"):
        write_site(Path("out"), [])
