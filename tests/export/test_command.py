"""`suite export` as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from suite.bundle.tags import change_tags
from tests.command import suite
from tests.synthetic import make_bundle, synthetic_manifest


def export(*arguments: object) -> Result:
    return suite("export", *arguments)


def test_json_says_what_was_written(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "phases.jsonl"
    told = json.loads(export(made, "-o", file, "--table", "phases", "--json").stdout)
    assert (told["schema"], told["table"], told["runs"]) == ("suite/export/1", "phases", 6)
    assert told["rows"] == len(file.read_text().splitlines()) > 6


def test_tags_are_exported_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    change_tags(make_bundle(tmp_path / "runs", synthetic_manifest()), ["baseline"], [])
    damaged = make_bundle(tmp_path / "runs", synthetic_manifest(repeat=2))
    (damaged / "manifest.json").write_text("{")
    done = export(tmp_path / "runs", "-o", tmp_path / "runs.jsonl")
    assert done.exit_code == 0 and "left out, damaged" in done.stderr and "1 run" in done.stdout
    (row,) = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert json.loads(row)["tags"] == ["baseline"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-o", "runs.txt"], "names no format"),
        (["-o", "runs.csv", "--table", "run"], "did you mean 'runs'"),
        (["-o", "folder", "--to", "excel"], "no tool 'excel'"),
        (["-o", "folder", "--to", "mlflow", "--table", "phases"], "--to writes runs, phases and iterations together"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(
    arguments: list[str], problem: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = export(made, *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    done = export(tmp_path, "-o", tmp_path / "runs.csv")
    assert done.exit_code == 2 and "no bundle" in done.stderr
    assert list(tmp_path.iterdir()) == []
