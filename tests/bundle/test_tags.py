"""Tags: beside the bundles, never in them, and never more than words."""

import json
import os
import threading
from pathlib import Path

import pytest

from suite.bundle.evidence import digest_of
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.tags import FOLDER, change_tags, forget_tags, tags_by_path, tags_of
from suite.spec.base import UsageError
from tests.synthetic import make_bundle, synthetic_manifest


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tags_change_no_byte_of_a_bundle_and_no_digest(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    before, digest = files(path), digest_of(Bundle(path))
    assert change_tags(path, ["b", "a"], []) == ("a", "b") == tags_of(path)
    assert (files(path), digest_of(Bundle(path))) == (before, digest)
    assert [bundle.path for bundle in find_bundles([tmp_path])] == [path]


def test_the_last_tags_and_those_of_a_run_that_is_gone_leave_nothing_behind(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    change_tags(path, ["a", "b"], [])
    assert change_tags(path, ["c"], ["a"]) == ("b", "c")
    assert change_tags(path, [], ["b", "c", "never-there"]) == ()
    assert not (tmp_path / FOLDER).exists()
    change_tags(path, ["a"], [])
    forget_tags(path)
    forget_tags(path)
    assert tags_of(path) == () and not (tmp_path / FOLDER).exists()


def test_tags_of_many_bundles_are_found_by_the_paths_that_were_given(tmp_path, monkeypatch):
    paths = [make_bundle(tmp_path / "runs", synthetic_manifest(repeat=repeat)) for repeat in (1, 2, 3)]
    change_tags(paths[1], ["x"], [])
    monkeypatch.chdir(tmp_path)
    relative = [path.relative_to(tmp_path) for path in paths]
    assert tags_by_path(relative) == ({relative[1].as_posix(): ("x",)}, [])
    monkeypatch.chdir(paths[1])
    assert tags_of(Path()) == ("x",) and tags_by_path([Path()]) == ({".": ("x",)}, [])


def test_tags_given_at_one_time_are_all_kept(tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    threads = [threading.Thread(target=change_tags, args=(path, [f"t{number}"], [])) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tags_of(path)) == 12


@pytest.mark.parametrize("tag", ["", "a b", "../x", "a/b", "\x1b[31m", "x" * 65, "-a", "=1+1"])
def test_what_is_no_word_is_no_tag_and_a_run_has_no_more_than_somebody_reads(tag: str, tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    with pytest.raises(UsageError, match="is no tag"):
        change_tags(path, [tag], [])
    assert not (tmp_path / FOLDER).exists()
    with pytest.raises(UsageError, match="51 tags, more than the 50"):
        change_tags(path, [f"t{number}" for number in range(51)], [])
    assert tags_of(path) == ()
    assert len(change_tags(path, [f"t{number}" for number in range(50)], [])) == 50


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"schema": "suite/tags/1"}', "[" * 60_000),
        json.dumps({"schema": "suite/tags/2", "tags": []}),
        json.dumps({"schema": "suite/tags/1", "tags": ["\x1b[31m"]}),
    ],
)
def test_a_file_that_holds_no_tags_is_told_and_passed_over(content: str, tmp_path: Path) -> None:
    path = make_bundle(tmp_path)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"{path.name}.json").write_text(content)
    with pytest.raises(UsageError, match="is no file of tags"):
        tags_of(path)
    found, problems = tags_by_path([path])
    assert found == {} and len(problems) == 1


def test_a_link_in_the_place_of_tags_is_not_followed(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "runs")
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"schema": "suite/tags/1", "tags": ["stolen"]}))
    (tmp_path / "runs" / FOLDER).mkdir()
    os.symlink(secret, tmp_path / "runs" / FOLDER / f"{path.name}.json")
    assert tags_by_path([path])[0] == {}
