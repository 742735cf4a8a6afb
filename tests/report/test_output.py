"""What `suite report` leaves behind: the same files for the same runs, shipped ones too, whole or as they were."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from suite.report.facts.model import build
from suite.report.plots import NAMES
from suite.report.text import markdown
from suite.report.text.answer import as_lines
from suite.report.text.markdown import as_json, write
from suite.spec.base import UsageError
from tests.command import refused, suite
from tests.report import entries as made

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "results"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_the_same_entries_give_the_same_bytes_in_any_order_process_zone_and_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setenv("SUITE_CACHE", "off")
    write(build(made.matrix(sizes=("1M",), runs=1)), tmp_path / "a" / "report.md")
    (tmp_path / "matplotlibrc").write_text("font.size: 30\naxes.facecolor: black\nsvg.fonttype: none\n")
    code = (
        "from tests.report.test_output import Path, build, made, write; "
        f"write(build(made.matrix(sizes=('1M',), runs=1)[::-1]), Path({str(tmp_path / 'b' / 'report.md')!r}))"
    )
    settings = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    subprocess.run([sys.executable, "-c", code], cwd=DOCS.parent, check=True, env={**os.environ, **settings})
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.slow
def test_every_file_that_is_told_is_there_and_linked_and_older_pictures_without_data_go(tmp_path: Path) -> None:
    path, *assets = write(build(made.matrix(sizes=("1M",), runs=1), "Mine"), tmp_path / "my report.md")
    assert set(contents(tmp_path)) == {str(one.relative_to(tmp_path)) for one in (path, *assets)}
    assert [one.stem for one in assets] == [*NAMES, "details"]
    text = path.read_text()
    assert text.startswith("# Mine\n")
    assert all(f"(my%20report-assets/{name}.svg)" in text for name in NAMES)
    (tmp_path / "my report-assets" / "own.svg").write_text("not ours")
    left = write(build([made.failed()]), tmp_path / "my report.md")
    assert {path.suffix for path in left} == {".md"}
    assert set(contents(tmp_path)) == {str(path.relative_to(tmp_path)) for path in left} | {"my report-assets/own.svg"}


def test_without_matplotlib_a_report_is_written_without_plots_and_says_what_brings_them(tmp_path, monkeypatch):
    monkeypatch.setattr("suite.report.plots.find_spec", {}.get)
    done = suite("report", RESULTS / "cpu" / "runs", "-o", tmp_path / "report.md")
    assert done.exit_code == 0 and "'rlhf-suite[plots]'" in done.stderr
    assert not list(tmp_path.rglob("*.svg"))
    assert ".svg" not in (tmp_path / "report.md").read_text()


def test_what_is_no_file_of_its_own_is_not_replaced_by_a_report(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.md").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(os.devnull)
    for name, told in (
        ("file/report.md", "cannot write"),
        ("folder.md", "it is a folder"),
        ("pipe", "it is no regular file"),
        ("link", "it is no regular file"),
    ):
        with pytest.raises(UsageError, match=told):
            write(build([made.failed()]), tmp_path / name)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_failure_in_the_middle_leaves_the_old_text_and_no_drafts(tmp_path, monkeypatch):
    write(build([made.failed()]), tmp_path / "report.md")
    before = contents(tmp_path)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(markdown, "render", full)
    with pytest.raises(UsageError, match="no space left on device"):
        write(build([made.failed(size="3M")]), tmp_path / "report.md")
    assert contents(tmp_path) == before


def test_json_holds_the_sentences_the_rows_and_refers_to_rows_by_number() -> None:
    model = build(made.matrix())
    told = json.loads(json.dumps(as_json(model), allow_nan=False))
    assert told["schema"] == "suite/report/1"
    assert tuple(told["summary"]) == as_lines(model)
    assert [row["number"] for row in told["rows"]] == list(range(1, 17))
    assert {ranked["row"] for group in told["ranking"]["groups"] for ranked in group["places"]} == set(range(1, 17))
    assert told["scaling"][0]["base"] == 1


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_json_with_a_file_is_refused_before_anything_is_read(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"leave out {option}" in refused("report", "nothing", "--json", option, "file")
    assert list(tmp_path.iterdir()) == []


#: Of the table in README.md: the name of a folder, and what writes its report again inside of it.
COMMANDS = dict(
    re.findall(r"(?m)^\| \[(.+)\]\(\1/report\.md\) .* `suite (report .+)` \|$", (RESULTS / "README.md").read_text())
)


def test_every_shipped_report_lies_beside_its_bundles_and_has_its_command() -> None:
    assert {path.parent for path in DOCS.rglob("report.md")} == {RESULTS / name for name in COMMANDS}
    for name in COMMANDS:
        assert [*(RESULTS / name).glob("runs/*/manifest.json"), *(RESULTS / name).glob("*.suite.zip")]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_shipped_report_and_its_pictures_are_written_again_byte_for_byte(name, tmp_path, monkeypatch):
    """A change of what reports say writes these again too, with the commands of docs/results/README.md."""
    monkeypatch.setenv("SUITE_CACHE", "off")
    monkeypatch.chdir(RESULTS / name)
    words = [str(tmp_path / word) if word == "report.md" else word for word in shlex.split(COMMANDS[name])]
    done = suite(*words)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "report.md").read_text() == Path("report.md").read_text()
    pictures = {path.as_posix(): path.read_bytes() for path in Path().glob("report-assets/*")}
    assert contents(tmp_path) == {"report.md": Path("report.md").read_bytes(), **pictures}
