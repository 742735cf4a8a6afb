"""Removing runs and drafts: the whole of one and nothing else, and never one that somebody is at."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from suite.bundle.drafts import at_work, clear_drafts, draft_folder, draft_of
from suite.bundle.removing import removable, remove
from suite.bundle.store import Bundle
from suite.bundle.tags import change_tags
from suite.launch.cluster.submission import FOLDER as SUBMITTED
from suite.spec.base import UsageError
from tests.synthetic import make_bundle, synthetic_manifest


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_goes_with_its_tags_and_leaves_the_others(tmp_path: Path) -> None:
    gone, kept = (make_bundle(tmp_path, synthetic_manifest(repeat=repeat)) for repeat in (1, 2))
    change_tags(gone, ["a"], [])
    change_tags(kept, ["b"], [])
    one = removable(gone)
    assert one.bytes == sum(path.stat().st_size for path in gone.rglob("*") if path.is_file()) > 0
    remove(one)
    assert names(tmp_path) == [".tags", kept.name]
    assert names(tmp_path / ".tags") == [f"{kept.name}.json"]


@contextmanager
def going_on(path: Path) -> Iterator[str]:
    with Bundle(path).hold():
        yield "is being run"


@contextmanager
def submitted(path: Path) -> Iterator[str]:
    (path.parent / SUBMITTED).mkdir()
    (path.parent / SUBMITTED / f"{path.name}.json").write_text("{}")
    yield "was submitted to a cluster"


@pytest.mark.parametrize("busy", [going_on, submitted])
def test_a_run_that_somebody_is_at_is_refused_at_both_times(tmp_path: Path, busy: Callable) -> None:
    path = make_bundle(tmp_path)
    one = removable(path)
    with busy(path) as says:
        with pytest.raises(UsageError, match=says):
            removable(path)
        with pytest.raises(UsageError, match=says):
            remove(one)
    assert path.is_dir() and names(path)


def test_a_damaged_bundle_can_be_removed_and_takes_nothing_outside_of_it_along(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "runs")
    (path / "manifest.json").write_text("{")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    os.symlink(tmp_path / "mine", path / "logs" / "link")
    remove(removable(path))
    assert names(tmp_path / "runs") == []
    assert (tmp_path / "mine" / "file").read_text() == "mine"


@pytest.mark.parametrize("place", ["results", "nothing", "file", "link"])
def test_what_is_no_bundle_is_left_alone(place: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "results")
    (tmp_path / "file").write_text("mine")
    os.symlink(bundle, tmp_path / "link")
    with pytest.raises(UsageError):
        removable(tmp_path / place)
    assert bundle.is_dir() and (tmp_path / "file").read_text() == "mine"


def test_a_run_that_was_moved_meanwhile_is_told(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "runs")
    one = removable(path)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="cannot write"):
        remove(one)
    assert (tmp_path / "elsewhere").is_dir()


MAKER = """
import sys; from pathlib import Path; from suite.bundle.drafts import draft_folder
with draft_folder(Path(sys.argv[1])) as draft:
    (draft / "events").mkdir()
    print(draft.name, flush=True); sys.stdin.read()
"""


def old(path: Path, seconds: float = 60.0) -> Path:
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def test_a_living_makers_draft_stays_and_goes_once_it_was_killed(tmp_path: Path) -> None:
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(tmp_path / "a-run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        draft = tmp_path / maker.stdout.readline().strip()
        old(draft)
        clear_drafts(tmp_path, ("a-run",))
        assert draft.is_dir()
    finally:
        maker.kill()
        maker.communicate()
    clear_drafts(tmp_path, ("another",))
    assert draft.is_dir()
    clear_drafts(tmp_path, ("a-run",))
    assert names(tmp_path) == []


def test_a_run_is_made_where_a_process_of_the_same_number_was_killed(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    draft = draft_of(tmp_path / manifest.run.id)
    (draft / "events").mkdir(parents=True)
    old(draft)
    bundle = Bundle.create(tmp_path, manifest)
    assert bundle.manifest() == manifest and names(tmp_path) == [manifest.run.id]


@pytest.mark.parametrize("name", [".a-run", ".a-run.12a", "a-run.12", ".a-run.12.x", ".backup.2024"])
def test_what_only_looks_like_a_draft_one_that_is_not_locked_yet_and_a_link_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "mine").mkdir(parents=True)
    old(tmp_path / name)
    draft = draft_of(tmp_path / "a-run")
    draft.mkdir()
    (tmp_path / ".a-run.1").symlink_to(tmp_path / name)
    clear_drafts(tmp_path, ("a-run",))
    assert draft.is_dir() and (tmp_path / name / "mine").is_dir()


def test_what_a_killed_process_was_removing_goes_with_the_next_that_is_removed(tmp_path: Path) -> None:
    half, busy = draft_of(tmp_path / "gone", ".removed").with_suffix(".1"), tmp_path / ".going.removed.2"
    half.mkdir()
    busy.mkdir()
    old(half), old(busy)
    path = make_bundle(tmp_path)
    with at_work(busy):
        remove(removable(path))
    assert names(tmp_path) == [busy.name]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), draft_folder(tmp_path / "a-run") as draft:
        (draft / "events").mkdir()
        raise KeyboardInterrupt
    assert names(tmp_path) == []
