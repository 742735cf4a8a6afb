"""What a report is made of: records that follow from their events, each run once."""

import json
import shutil
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.state import state_of
from suite.report.facts.model import build
from suite.report.reading import read_entries
from suite.report.text.markdown import render
from suite.spec.base import UsageError
from tests.synthetic import make_bundle, synthetic_manifest


def recorded(root: Path, repeat: int = 1, seconds: float = 1.0) -> Path:
    path = make_bundle(root, synthetic_manifest(repeat=repeat), seconds=seconds)
    Bundle(path).write_record(derive(Bundle(path)))
    return path


def test_a_figure_changed_in_a_record_is_not_reported_but_told(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    stored = path / "record.json"
    body = json.loads(stored.read_text())
    body["iterations"]["seconds"] = [seconds / 10 for seconds in body["iterations"]["seconds"]]
    stored.write_text(json.dumps(body))
    found = read_entries([tmp_path])
    (row,) = build(found.entries).rows
    assert row.iteration_seconds == pytest.approx(1.0)
    (line,) = map(str, found.caveats)
    assert "record.json is not what its events give" in line and "stored 0.1, derived 1.0 and 9 more" in line
    assert "## Caveats" in render(build(found.entries, None, found.warnings()), {})


def test_a_copy_of_a_run_is_no_repeat_under_its_own_number_or_another(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    shutil.copytree(path, tmp_path / "copy")
    forged = tmp_path / path.name.replace("-r1", "-r4")
    shutil.copytree(path, forged)
    manifest = forged / "manifest.json"
    manifest.write_text(manifest.read_text().replace(path.name, forged.name).replace('"repeat":1', '"repeat":4'))
    Bundle(forged).write_record(derive(Bundle(forged)))
    assert verify(Bundle(forged)).status == "equal" and Bundle(forged).manifest().run.repeat == 4
    found = read_entries([tmp_path])
    assert len(found.entries) == 1 and "the same run as" in found.caveats[0].text
    second = synthetic_manifest(repeat=2)
    shutil.copytree(path, tmp_path / second.run.id)
    assert state_of(tmp_path, second) == "damaged", "a copy under the name of a repeat is not that repeat done"


def test_two_runs_of_one_manifest_on_two_machines_are_two_runs(tmp_path: Path) -> None:
    recorded(tmp_path / "a", seconds=1.0)
    recorded(tmp_path / "b", seconds=1.1)
    assert len(read_entries([tmp_path]).entries) == 2


def test_runs_that_left_no_iteration_are_all_reported(tmp_path: Path) -> None:
    for repeat in (1, 2):
        make_bundle(tmp_path, synthetic_manifest(repeat=repeat), status="failed", completed=0)
    assert len(read_entries([tmp_path]).entries) == 2


def test_a_run_that_is_under_way_is_left_out_and_told(tmp_path: Path) -> None:
    recorded(tmp_path)
    path = make_bundle(tmp_path, synthetic_manifest(repeat=2), status=None, completed=3)
    with Bundle(path).hold():
        found = read_entries([tmp_path])
        assert len(found.entries) == 1
        assert found.warnings() == [f"{path}: left out, because it is still being run"]
        with pytest.raises(UsageError, match="still being run"):
            read_entries([path])


def test_a_file_too_long_to_be_read_keeps_no_record_from_being_derived(tmp_path: Path) -> None:
    recorded(tmp_path)
    with (recorded(tmp_path, repeat=2) / "events" / "rank-0.jsonl").open("r+b") as file:
        file.truncate(1 << 40)
    found = read_entries([tmp_path])
    assert (len(found.entries), len(found.damaged), len(found.caveats)) == (1, 1, 1)


def test_a_damaged_bundle_is_left_out_and_told_in_the_report(tmp_path: Path) -> None:
    recorded(tmp_path)
    broken = recorded(tmp_path, repeat=2)
    (broken / "manifest.json").write_text("{")
    found = read_entries([tmp_path])
    assert len(found.entries) == 1
    assert f"{broken}: left out, damaged: manifest.json" in found.warnings()[0]
    (broken.parent / Path(found.entries[0].path).name / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="no bundle to report"):
        read_entries([tmp_path])


def test_names_of_folders_cannot_drive_a_terminal_or_a_report(tmp_path: Path) -> None:
    recorded(tmp_path)
    hostile = tmp_path / "\x1b[2J<b>\u202e"
    (hostile / "events").mkdir(parents=True)
    found = read_entries([tmp_path])
    (line,) = found.warnings()
    assert line.isprintable()
    assert "<b>" not in render(build(found.entries, None, found.warnings()), {}).replace("\\<", "")
