"""`suite backends`: what is there, where, and whether it could run."""

from __future__ import annotations

import sys

import pytest

from tests.command import suite


@pytest.fixture(autouse=True)
def _a_newer_trl_than_the_last_with_ppo(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("suite.launch.probe", "suite.backends.base"):
        versions = f"{module}.stack_versions"
        monkeypatch.setattr(versions, lambda python, packages: {**dict.fromkeys(packages, "5.0"), "trl": "1.16.0"})
    for module in ("trlx_deepspeed", "trlx_nemo"):
        monkeypatch.setattr(f"suite.backends.{module}.trlx_errors", lambda python, engine=False: [])


def test_a_stack_that_is_there_and_cannot_run_says_so_and_which_interpreter_has_it() -> None:
    lines = suite("backends", "--python", f"trl-ppo={sys.executable}").stdout.splitlines()
    (first,) = [number for number, line in enumerate(lines) if line.startswith("trl-ppo ")]
    assert "trl 1.16.0" in lines[first + 1] and lines[first + 2].strip() == f"in {sys.executable}"
    assert lines[first + 3].strip().startswith("cannot run there: ") and "1.12.0" in lines[first + 3]
    (usable,) = [number for number, line in enumerate(lines) if line.startswith("trl-grpo ")]
    assert "cannot run" not in lines[usable + 3]
