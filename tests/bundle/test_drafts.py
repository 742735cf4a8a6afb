"""Drafts of processes that were killed go, those of living ones and what only looks like one stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suite.bundle.drafts import at_work, clear_drafts, draft_folder, draft_of, removed_draft_of
from suite.bundle.removing import removable, remove
from suite.bundle.store import Bundle
from tests.synthetic import make_bundle, synthetic_manifest

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


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


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
    assert names(tmp_path) == set()


def test_a_run_is_made_where_a_process_of_the_same_number_was_killed(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    draft = draft_of(tmp_path / manifest.run.id)
    (draft / "events").mkdir(parents=True)
    old(draft)
    bundle = Bundle.create(tmp_path, manifest)
    assert bundle.manifest() == manifest and names(tmp_path) == {manifest.run.id}


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
    half, busy = removed_draft_of(tmp_path / "gone").with_suffix(".1"), tmp_path / ".going.removed.2"
    half.mkdir()
    busy.mkdir()
    old(half), old(busy)
    path = make_bundle(tmp_path)
    with at_work(busy):
        remove(removable(path))
    assert names(tmp_path) == {busy.name}


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), draft_folder(tmp_path / "a-run") as draft:
        (draft / "events").mkdir()
        raise KeyboardInterrupt
    assert names(tmp_path) == set()
