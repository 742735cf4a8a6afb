"""Whose manifest a rerun runs without asking, and what it says of any other."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.store import Bundle
from suite.cli.options.consent import require_consent
from suite.conduct.running.consent import recorded_here, what_it_asks
from suite.conduct.running.origin import FIELD, is_from_here, origin_of
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.conduct.running.test_rerun import _scripted, script, suite  # noqa: F401 - a fixture
from tests.synthetic import GPT, make_bundle, synthetic_manifest

pytest_plugins = ()


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))


def recorded(root: Path, manifest: Manifest) -> Path:
    """A bundle that this user recorded."""
    path = make_bundle(root, manifest)
    Bundle(path).write_environment({"host": "a", **origin_of(manifest)})
    return path


def test_what_this_user_recorded_here_is_known_by_its_bundle(tmp_path: Path) -> None:
    path = recorded(tmp_path, synthetic_manifest())
    assert recorded_here(Bundle(path).manifest(), path)
    assert recorded_here(Bundle(path).manifest(), path / "manifest.json")
    key = tmp_path / "cache/origin.key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.stat().st_size == 32


def test_another_manifest_another_run_and_another_user_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded(tmp_path, synthetic_manifest())
    facts = Bundle(path).environment()
    assert is_from_here(synthetic_manifest(), facts)
    assert not is_from_here(synthetic_manifest(iterations=9), facts)
    assert not is_from_here(synthetic_manifest(repeat=2), facts), "a code is of one run"
    for told in (None, 5, "", "\ud800", ["a"], {}):
        assert not is_from_here(synthetic_manifest(), {FIELD: told})
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "another"))
    assert not recorded_here(Bundle(path).manifest(), path)
    assert not (tmp_path / "another/origin.key").exists(), "nothing is made to look at a bundle"


def test_a_manifest_alone_or_renamed_is_nobodys(tmp_path: Path) -> None:
    path = recorded(tmp_path, synthetic_manifest())
    other = tmp_path / "elsewhere/manifest.json"
    other.parent.mkdir()
    shutil.copy(path / "manifest.json", other)
    assert not recorded_here(Bundle(path).manifest(), other)
    assert not recorded_here(Bundle(path).manifest(), path / "other.json")


def test_a_key_that_others_may_write_proves_nothing(tmp_path: Path) -> None:
    path = recorded(tmp_path, synthetic_manifest())
    (tmp_path / "cache/origin.key").chmod(0o666)
    assert not recorded_here(Bundle(path).manifest(), path) and origin_of(synthetic_manifest()) == {}


def test_without_a_folder_for_a_key_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_CACHE", "off")
    assert origin_of(synthetic_manifest()) == {}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def asked(monkeypatch: pytest.MonkeyPatch, answer: str, manifest: Manifest, path: Path) -> str:
    """What a user at a terminal is shown; raises where the answer is not yes."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown)
    require_consent(manifest, path, "3 runs", yes=False)
    return shown.getvalue()


def test_a_foreign_manifest_is_shown_and_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = synthetic_manifest()
    path = make_bundle(tmp_path, manifest)
    for answer in ("", "\n", "n\n", "nope\n"):
        with pytest.raises(UsageError, match="the answer was not yes"):
            asked(monkeypatch, answer, manifest, path)
    shown = asked(monkeypatch, "y\n", manifest, path)
    for words in (
        "3 runs",
        "1M, gpt2",
        "1 on 1 node",
        "GiB in all",
        "1 h 0 min a run",
        "deepspeed on deepspeed 1.0",
        "run it? [y/N]",
    ):
        assert words.replace("1 h 0 min", "1 h") in shown or words in shown, (words, shown)


def test_where_nobody_can_be_asked_one_line_says_how_to_go_on(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, synthetic_manifest())
    with pytest.raises(
        UsageError, match=r"not a bundle that you recorded on this machine: .* or run it with --yes"
    ) as caught:
        require_consent(synthetic_manifest(), path, "3 runs", yes=False)
    assert "\n" not in str(caught.value)
    require_consent(synthetic_manifest(), path, "3 runs", yes=True)


def test_what_is_shown_of_a_manifest_moves_no_cursor() -> None:
    size = GPT.model_copy(update={"name": "1M\x1b[2J\u202eevil"})
    for line in what_it_asks(synthetic_manifest(size=size), "3 runs"):
        assert line.isprintable()


@pytest.mark.usefixtures("_scripted")
def test_the_command_runs_ones_own_unasked_and_a_foreign_one_only_with_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script(monkeypatch, 1, seconds=0.01)
    measure = ("--size", "1M", "--ranks", "1", "--device", "cpu", "--backend", "deepspeed", "--iterations", "3")
    assert suite("run", *measure, "--repeats", 1, "--runs", tmp_path / "own") == 0
    bundle = next(path for path in (tmp_path / "own").iterdir() if path.name.endswith("-r1"))
    assert suite("rerun", bundle, "--runs", tmp_path / "new", "--repeats", "1") == 0
    capsys.readouterr()
    environment = json.loads((bundle / "environment.json").read_text())
    del environment[FIELD]
    (bundle / "environment.json").write_text(json.dumps(environment))
    (bundle / "record.json").unlink()
    assert suite("rerun", bundle, "--runs", tmp_path / "foreign", "--repeats", "1") == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and "--yes" in told.err and not (tmp_path / "foreign").exists()
    assert suite("rerun", bundle, "--runs", tmp_path / "foreign", "--repeats", "1", "--yes") == 0


@pytest.mark.usefixtures("_scripted")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {
                "size": GPT.model_copy(
                    update={"layers": 96, "hidden": 12288, "ffn": 49152, "heads": 96, "kv_heads": 96, "vocab": 50304}
                )
            },
            "GiB of memory",
        ),
        (
            {"layout": {"nodes": 2, "devices_per_node": 1, "data": 2}},
            "2 ranks on 2 nodes need the kubernetes or the slurm launcher",
        ),
    ],
)
def test_what_this_machine_cannot_hold_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], says: str
) -> None:
    if "layout" in changes:
        changes = {"layout": Layout.model_validate(changes["layout"])}
    manifest = synthetic_manifest(**changes)
    file = tmp_path / "manifest.json"
    file.write_text(manifest.model_dump_json(by_alias=True))
    assert suite("rerun", file, "--runs", tmp_path / "runs", "--yes", "--oversubscribe") == 2
    assert says in capsys.readouterr().err and not (tmp_path / "runs").exists()
