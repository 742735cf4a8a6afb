import json
import os
import subprocess
import sys

import pytest

from suite.bundle.event_fields import kind_of
from suite.bundle.store import ATTIC, AlreadyThere, Bundle, DamagedBundle, find_bundles
from suite.spec.base import UsageError
from tests.synthetic import make_bundle, synthetic_manifest


def test_a_new_bundle_holds_its_manifest_and_nothing_else(tmp_path):
    manifest = synthetic_manifest()
    bundle = Bundle.create(tmp_path / "new" / "runs", manifest)
    assert bundle.path == tmp_path / "new" / "runs" / manifest.run.id
    assert bundle.manifest() == manifest
    assert sorted(path.name for path in bundle.path.iterdir()) == ["events", "logs", "manifest.json"]
    assert sorted(path.name for path in bundle.path.parent.iterdir()) == [manifest.run.id]
    assert (bundle.environment(), bundle.record(), bundle.running()) == (None, None, False)
    bundle.write_environment({"host": "a"})
    assert bundle.environment() == {"host": "a"}


def test_nothing_is_overwritten_and_of_two_drivers_that_make_the_same_run_at_once_one_does(tmp_path):
    bundle = Bundle.create(tmp_path, synthetic_manifest())
    (bundle.path / "logs" / "rank-0.log").write_text("kept")
    (tmp_path / synthetic_manifest(repeat=2).run.id).write_text("kept")
    for repeat in (1, 2):
        with pytest.raises(AlreadyThere, match="exists; nothing is overwritten"):
            Bundle.create(tmp_path, synthetic_manifest(repeat=repeat))
    assert (tmp_path / synthetic_manifest(repeat=2).run.id).read_text() == "kept"
    assert (bundle.path / "logs" / "rank-0.log").read_text() == "kept"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_root_that_is_a_file_or_cannot_be_written_to_is_refused_in_one_line(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*file exists"):
        Bundle.create(tmp_path / "runs", synthetic_manifest())
    tmp_path.chmod(0o500)
    was = os.geteuid()
    os.seteuid(was or 65534)  # root may write anywhere
    try:
        with pytest.raises(UsageError, match="permission denied"):
            Bundle.create(tmp_path / "more", synthetic_manifest())
    finally:
        os.seteuid(was)


def test_a_full_disk_leaves_no_half_bundle_behind(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="no space left on device"):
        Bundle.create(tmp_path, synthetic_manifest())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("run_id", ["../escape", "a/b", ".hidden", "", "x" * 300, "a\nb"])
def test_a_run_id_that_is_no_folder_name_is_refused(tmp_path, run_id):
    manifest = synthetic_manifest()
    manifest = manifest.model_copy(update={"run": manifest.run.model_copy(update={"id": run_id})})
    with pytest.raises(UsageError, match="cannot be the name of a folder"):
        Bundle.create(tmp_path / "runs", manifest)
    assert list(tmp_path.iterdir()) == []


def test_driver_events_are_on_disk_when_written(tmp_path):
    bundle = Bundle.create(tmp_path, synthetic_manifest())
    with bundle.driver_events() as log:
        log.write("launch", schema="suite/events/1", launcher="local", ranks=1, pid=1)
        assert len(bundle.events().driver) == 1
        log.write("end", status="ok", exit_codes={"0": 0}, elapsed_seconds=1.0)
    events = bundle.events()
    told = [(event.seq, kind_of(event), event.rank) for event in events.driver]
    assert told == [(0, "launch", None), (1, "end", None)]
    assert events.notes == ()


def test_a_run_is_held_by_one_process_and_freed_by_its_death(tmp_path):
    bundle = Bundle.create(tmp_path, synthetic_manifest())
    code = (
        "import sys; from pathlib import Path; from suite.bundle.store import Bundle\n"
        "with Bundle(Path(sys.argv[1])).hold():\n print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(bundle.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert bundle.running()
        with pytest.raises(UsageError, match="is being run by another process"), bundle.hold(0.0):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert not bundle.running()
    with bundle.hold():
        assert bundle.running()
    assert not bundle.running()


def test_bundles_are_found_below_their_roots_once_and_by_id_and_in_the_attic_when_it_is_named(tmp_path):
    second = make_bundle(tmp_path / "b", synthetic_manifest(repeat=2))
    first = make_bundle(tmp_path / "b" / "deeper", synthetic_manifest(repeat=1))
    put_aside = make_bundle(tmp_path / "b" / ATTIC, synthetic_manifest(repeat=3))
    make_bundle(tmp_path / "b" / ".draft", synthetic_manifest(repeat=4))
    (tmp_path / "b" / "loop").symlink_to(tmp_path / "b")
    assert [bundle.path for bundle in find_bundles([tmp_path / "b", second])] == [first, second]
    for named in (put_aside, put_aside.parent):
        assert [bundle.path for bundle in find_bundles([named])] == [put_aside]
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "link").symlink_to(tmp_path / "b")
    assert find_bundles([tmp_path / "links"]) == []


def test_a_bundle_that_lost_its_manifest_is_still_found_and_a_changed_manifest_is_damage(tmp_path):
    path = make_bundle(tmp_path)
    body = json.loads((path / "manifest.json").read_text())
    body["measure"]["warmup"] = 1
    (path / "manifest.json").write_text(json.dumps(body))
    with pytest.raises(DamagedBundle, match="was changed after it was made"):
        Bundle(path).manifest()
    (path / "manifest.json").unlink()
    (bundle,) = find_bundles([tmp_path])
    with pytest.raises(DamagedBundle, match=r"manifest\.json is missing"):
        bundle.manifest()


@pytest.mark.parametrize("name", ["missing", "file.txt", "x" * 5000])
def test_a_path_that_is_no_folder_is_bad_usage(tmp_path, name):
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(UsageError, match=r"cannot read|not a folder"):
        find_bundles([tmp_path / name])
