"""Whose manifest a rerun runs without asking, and what it says of any other."""

import shutil
import sys
from pathlib import Path

import pytest

from suite.bundle.store import Bundle
from suite.cli.rerun import require_consent
from suite.conduct.running.provenance import FIELD, is_from_here, origin_of
from suite.conduct.running.rerun import recorded_here, what_it_asks
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size
from suite.spec.layout import Layout
from tests.command import suite
from tests.conduct.running.test_progress import Terminal
from tests.synthetic import GPT, make_bundle, synthetic_manifest

MANIFEST = synthetic_manifest()


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = make_bundle(tmp_path, MANIFEST)
    Bundle(path).write_environment({"host": "a", **origin_of(MANIFEST)})
    return path


def test_what_was_recorded_here_is_known_by_its_bundle_alone(recorded: Path, tmp_path: Path) -> None:
    assert recorded_here(MANIFEST, recorded)
    assert recorded_here(MANIFEST, recorded / "manifest.json")
    assert not recorded_here(MANIFEST, recorded / "other.json")
    (tmp_path / "elsewhere").mkdir()
    alone = shutil.copy(recorded / "manifest.json", tmp_path / "elsewhere/manifest.json")
    assert not recorded_here(MANIFEST, Path(alone))


def test_another_manifest_another_run_and_another_user_are_not(recorded, tmp_path, monkeypatch):
    facts = Bundle(recorded).environment()
    assert is_from_here(MANIFEST, facts)
    assert not is_from_here(synthetic_manifest(iterations=9), facts)
    assert not is_from_here(synthetic_manifest(repeat=2), facts), "a code is of one run"
    for told in (None, 5, "", "\ud800", ["a"], {}):
        assert not is_from_here(MANIFEST, {FIELD: told})
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "another"))
    assert not recorded_here(MANIFEST, recorded)
    assert not (tmp_path / "another/origin.key").exists(), "nothing is made to look at a bundle"


def test_a_key_is_ones_own_and_one_that_others_may_write_proves_nothing(recorded, tmp_path, monkeypatch):
    key = tmp_path / "cache/origin.key"
    assert key.stat().st_mode & 0o777 == 0o600 and key.stat().st_size == 32
    key.chmod(0o666)
    assert not recorded_here(MANIFEST, recorded) and origin_of(MANIFEST) == {}
    monkeypatch.setenv("SUITE_CACHE", "off")
    assert origin_of(MANIFEST) == {}, "without a folder for a key"


def test_a_foreign_manifest_is_shown_and_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_bundle(tmp_path, MANIFEST)
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    for answer in ("", "\n", "n\n", "nope\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        with pytest.raises(UsageError, match="the answer was not yes"):
            require_consent(MANIFEST, path, "3 runs", yes=False)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    require_consent(MANIFEST, path, "3 runs", yes=False)
    for words in ("3 runs", "1M, gpt2", "1 on 1 node", "GiB in all", "1 h", "deepspeed on deepspeed 1.0", "[y/N]"):
        assert words in shown.getvalue()
    evil = GPT.model_copy(update={"name": "1M\x1b[2J\u202eevil"})
    assert all(map(str.isprintable, what_it_asks(synthetic_manifest(size=evil), "3 runs"))), "it moves no cursor"


def test_where_nobody_can_be_asked_one_line_says_how_to_go_on(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, MANIFEST)
    says = r"not a bundle that you recorded on this machine: .* or run it with --yes"
    with pytest.raises(UsageError, match=says) as caught:
        require_consent(MANIFEST, path, "3 runs", yes=False)
    assert "\n" not in str(caught.value)
    require_consent(MANIFEST, path, "3 runs", yes=True)


TWO_NODES = Layout(nodes=2, devices_per_node=1, data=2)


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (synthetic_manifest(size=find_size("66B")), "GiB of memory"),
        (synthetic_manifest(layout=TWO_NODES), "2 ranks on 2 nodes need the kubernetes or the slurm launcher"),
    ],
    ids=["too large", "two nodes"],
)
def test_what_this_machine_cannot_hold_is_refused_before_anything_is_made(tmp_path, script, manifest, says):
    file = tmp_path / "manifest.json"
    file.write_text(manifest.model_dump_json(by_alias=True))
    done = suite("rerun", file, "--runs", tmp_path / "runs", "--yes", "--force")
    assert done.exit_code == 2 and says in done.stderr and not (tmp_path / "runs").exists()
