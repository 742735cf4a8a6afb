"""`suite images` as a user types it: without a runtime, with names that are wrong, and what its JSON holds."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from suite.images.build import BuildFailed, Step
from suite.images.check import Answer, Difference
from suite.spec.images import images
from tests.command import refused, suite, told

NO_ENGINE = "unix:///nowhere/docker.sock"
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)


def test_the_list_works_without_an_engine_and_says_what_it_cannot_know() -> None:
    shown = suite("images", "list").stdout
    assert all(f"{name} " in shown for name in images())
    assert "not pinned by digest" in shown and shown.count("made here, of Debian's packages") == 7
    assert f"no container runtime answers at {NO_ENGINE}" in shown
    assert [row["image"]["name"] for row in told("images", "list")["images"]] == list(images())


@pytest.fixture
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that answers, and is asked nothing."""
    monkeypatch.setattr("suite.cli.images.connect", Mock())


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize(
    ("found", "code"), [((OLD, OLD), 0), ((OLD, None), 0), ((OLD, NEW), 3), ((NEW, None), 3), ((None, None), 2)]
)
def test_lock_tells_a_digest_that_differs_and_registries_that_do_not_answer(monkeypatch, found, code):
    answers = [Answer(base=f"b{i}", reference=f"b:{i}", locked=OLD, found=one) for i, one in enumerate(found)]
    monkeypatch.setattr("suite.cli.images.ask_registries", lambda api, bases: answers)
    done = suite("images", "lock")
    assert done.exit_code == code
    assert ("differs from the locked one" in done.stdout) is (NEW in found)
    assert ("neither confirmed nor refuted" in done.stderr) is (code == 2)
    assert ('"differs"' in suite("images", "lock", "--json").stdout) is (NEW in found)


@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize("found", [[], [Difference(where="stack: torch", expected="2", found="1")]])
def test_check_fails_its_gate_on_a_difference(monkeypatch: pytest.MonkeyPatch, found: list[Difference]) -> None:
    monkeypatch.setattr("suite.cli.images.check_image", lambda *_: found)
    shown, body = suite("images", "check", "engines"), suite("images", "check", "engines", "--json")
    assert shown.exit_code == body.exit_code == (3 if found else 0)
    assert len(json.loads(body.stdout)["differences"]) == len(found)
    assert ("stack: torch: 1, expected 2" in shown.stdout) is bool(found)


@pytest.mark.usefixtures("_engine")
def test_a_failed_build_shows_its_end_and_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = BuildFailed(Step(4, 9, "RUN make"), ["compiling", "no space left"], Path("build.log"))
    monkeypatch.setattr("suite.cli.images.build_image", Mock(side_effect=failed))
    done = suite("images", "build", "engines")
    error = "error: step 4 of 9 (RUN make) failed: no space left; all of its output is in build.log"
    assert (done.exit_code, done.stderr) == (1, f"  compiling\n{error}\n")


@pytest.mark.usefixtures("_engine")
def test_check_copies_the_list_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("suite.cli.images.check_image", lambda *_: [])
    monkeypatch.setattr("suite.cli.images.read_sbom", lambda *_: b"{}")
    assert suite("images", "check", "engines", "--sbom", tmp_path / "list.json").exit_code == 0
    assert (tmp_path / "list.json").read_bytes() == b"{}"
    assert "there is no folder /no/such" in refused("images", "check", "engines", "--sbom", "/no/such/list.json")
