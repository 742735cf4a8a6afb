"""The wheelhouse: complete, hashed as it is, and honest about what pip could not find."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from suite.images.project import Project, fill_wheelhouse, pins_of
from suite.spec.base import UsageError
from suite.spec.images import find_image

ENGINES = find_image("engines")
PINS = {"deepspeed": "0.19.8", "torch": "2.13.0", "typing-extensions": "4.16.0"}
WHEELS = {
    "download": ("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", "typing_extensions-4.16.0-py3-none-any.whl"),
    "wheel": ("deepspeed-0.19.8-py3-none-any.whl",),
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "requirements/images").mkdir(parents=True)
    lines = [f"{name}=={version}\n" for name, version in PINS.items()]
    (tmp_path / "requirements/cpu.lock").write_text("".join(lines))
    return Project(tmp_path)


class ScriptedPip:
    """Puts down the wheels that it was given, or fails with the message that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wheels: dict[str, tuple[str, ...]], error: str = "") -> None:
        self.wheels, self.error = wheels, error
        self.calls: list[tuple[str, ...]] = []
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, command: tuple[str, ...], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        assert env["DS_BUILD_OPS"] == "0"
        arguments = command[command.index("--disable-pip-version-check") + 1 :]
        self.calls.append(arguments)
        option = "--dest" if arguments[0] == "download" else "--wheel-dir"
        for name in self.wheels.get(arguments[0], ()):
            (Path(arguments[arguments.index(option) + 1]) / name).write_bytes(name.encode())
        return subprocess.CompletedProcess(command, 1 if self.error else 0, "", self.error)


def test_the_lock_beside_it_holds_the_hashes_of_its_very_wheels(project, monkeypatch):
    ScriptedPip(monkeypatch, WHEELS)
    folder = fill_wheelhouse(project, ENGINES)
    lock = folder.parent / "cpu.lock"
    assert pins_of(lock) == {**PINS, "torch": "2.13.0+cpu"}
    for names in WHEELS.values():
        for name in names:
            assert hashlib.sha256(name.encode()).hexdigest() in lock.read_text()


def test_another_image_has_a_lock_of_its_own_beside_the_same_wheels(project, monkeypatch):
    ScriptedPip(monkeypatch, WHEELS)
    trl = find_image("trl")
    (project.root / "requirements/images/cpu-trl.lock").write_text("torch==2.13.0\n")
    folder = fill_wheelhouse(project, trl)
    assert pins_of(folder.parent / "cpu-trl.lock") == {"torch": "2.13.0+cpu"}


def test_a_second_call_builds_deepspeed_no_more(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = ScriptedPip(monkeypatch, WHEELS)
    fill_wheelhouse(project, ENGINES)
    built = sum(call[0] == "wheel" for call in pip.calls)
    hashed = {Path(call[-1]).name for call in pip.calls if "--require-hashes" in call}
    assert hashed == {"driver.lock", "uv.lock"}, "the driver and the tool"
    fill_wheelhouse(project, ENGINES)
    assert built == sum(call[0] == "wheel" for call in pip.calls) == 1


FOR_CUDA = ("torch-2.13.0-cp311-cp311-linux_x86_64.whl", WHEELS["download"][1])
NO_MATCH = "Looking around\nERROR: No matching distribution found for uv==0\n\n"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"download": FOR_CUDA}, "", "no CPU build of torch; point pip at one"),
        ({"wheel": ()}, "", r"no wheel of deepspeed 0\.19\.8"),
        (
            {"download": (), "wheel": ()},
            NO_MATCH,
            "pip download cannot fill the wheelhouse: ERROR: No matching distribution",
        ),
    ],
)
def test_what_is_missing_is_told_in_one_line(project, monkeypatch, changes, error, words):
    ScriptedPip(monkeypatch, {**WHEELS, **changes}, error)
    with pytest.raises(UsageError, match=words):
        fill_wheelhouse(project, ENGINES)
