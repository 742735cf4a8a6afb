"""`suite images` as a user types it: without a runtime, with names that are wrong, and what its JSON holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from suite.cli.app import app
from suite.images.check import Difference
from suite.images.digests import Answer
from suite.spec.images import images

ROOT = Path(__file__).resolve().parents[2]
NO_ENGINE = "unix:///nowhere/docker.sock"
OLD, NEW = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(("images", *arguments), prog_name="suite")
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)


@pytest.mark.parametrize("command", ["list", "build", "wheelhouse", "lock", "check"])
def test_every_command_explains_itself_and_offers_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    told = capsys.readouterr().out
    assert "Usage" in told and "--json" in told


def test_the_list_works_without_an_engine_and_says_what_it_cannot_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    told = capsys.readouterr().out
    assert all(f"{name} " in told for name in images())
    assert "not pinned by digest" in told and told.count("digest   sha256:") == 7
    assert f"no container runtime answers at {NO_ENGINE}" in told


def test_the_list_as_json_holds_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["image"]["name"] for row in told["images"]] == list(images())
    assert all(row["present"] is None for row in told["images"]) and NO_ENGINE in told["engine"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("build", "engine"), "did you mean 'engines'"),
        (("check", "nemmo"), "did you mean 'nemo'"),
        (("lock", "trlxx"), "did you mean 'trlx'"),
        (("wheelhouse", "nemo"), "has no CPU build"),
        (("build", "engines", "--project", "/nowhere"), "no checkout"),
        (("check", "engines", "--project", "/nowhere"), "no checkout"),
        (("build", "engines", "--build-arg", "STACK"), "NAME=VALUE"),
        (("build", "engines"), "no container runtime answers"),
        (("check", "engines"), "no container runtime answers"),
        (("lock",), "no container runtime answers"),
        (("wheelhouse", "--project", "/nowhere"), "no checkout"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_2(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    told = capsys.readouterr()
    assert told.err.startswith("error: ") and words in told.err and told.err.count("\n") == 1
    assert told.out == ""


class Connection:
    api = None


def with_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.launch.docker.connection.connect", Connection)


def with_answers(monkeypatch: pytest.MonkeyPatch, *found: str | None) -> None:
    with_scheduler(monkeypatch)
    answers = [Answer(base=f"b{i}", reference=f"b:{i}", locked=OLD, found=one) for i, one in enumerate(found)]
    monkeypatch.setattr("suite.images.digests.ask", lambda api, bases: answers)


@pytest.mark.parametrize(
    ("found", "code"), [((OLD, OLD), 0), ((OLD, None), 0), ((OLD, NEW), 3), ((NEW, None), 3), ((None, None), 2)]
)
def test_lock_tells_a_digest_that_differs_and_registries_that_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: tuple[str | None, ...], code: int
) -> None:
    with_answers(monkeypatch, *found)
    assert run("lock") == code
    told = capsys.readouterr()
    assert ("differs from the locked one" in told.out) is (NEW in found)
    assert ("neither confirmed nor refuted" in told.err) is (code == 2)


def test_lock_as_json_has_a_verdict_for_each_base(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_answers(monkeypatch, NEW)
    assert run("lock", "--json") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] == [] and [one["verdict"] for one in told["bases"]] == ["differs"]


@pytest.mark.parametrize("found", [[], [Difference(where="stack: torch", expected="2", found="1")]])
def test_check_fails_its_gate_on_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: list[Difference]
) -> None:
    with_scheduler(monkeypatch)
    monkeypatch.setattr("suite.images.check.check_image", lambda *_: found)
    assert run("check", "engines", "--json") == (3 if found else 0)
    assert len(json.loads(capsys.readouterr().out)["differences"]) == len(found)
    assert run("check", "engines") == (3 if found else 0)
    told = capsys.readouterr().out
    assert ("stack: torch: 1, expected 2" in told) is bool(found)


def test_a_failed_build_shows_the_end_of_the_step_and_is_no_mistake_of_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from suite.images.build_output import BuildFailed, Step

    def fail(*_: object) -> None:
        raise BuildFailed(Step(4, 9, "RUN make"), ["compiling", "no space left"], Path("build.log"))

    with_scheduler(monkeypatch)
    monkeypatch.setattr("suite.images.build.build_image", fail)
    assert run("build", "engines") == 1
    told = capsys.readouterr().err
    assert told == (
        "  compiling\nerror: step 4 of 9 (RUN make) failed: no space left; all of its output is in build.log\n"
    )


def test_nothing_heavy_is_imported_to_explain_the_commands() -> None:
    code = "import sys, suite.cli.images; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"docker", "pydantic", "requests", "rich"} & set(done.stdout.split())


def test_check_copies_the_list_out_and_keeps_it_for_archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept: list[tuple[str, bytes]] = []
    image_id = f"sha256:{'a' * 64}"
    api = SimpleNamespace(inspect_image=lambda tag: {"Id": image_id})
    monkeypatch.setattr("suite.launch.docker.connection.connect", lambda: SimpleNamespace(api=api))
    monkeypatch.setattr("suite.images.check.check_image", lambda *_: [])
    monkeypatch.setattr("suite.images.inside.copy_out", lambda *_: b"{}")
    monkeypatch.setattr("suite.bundle.archive.sboms.keep_sbom", lambda *given: kept.append(given))
    assert run("check", "engines", "--sbom", str(tmp_path / "list.json")) == 0
    assert (tmp_path / "list.json").read_bytes() == b"{}" and kept == [(image_id, b"{}")]
