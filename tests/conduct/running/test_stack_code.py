"""A stack whose files changed is another one: its runs have other ids, and none of them is done already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.conduct.running.rerun import require_same_stack
from suite.spec.base import UsageError
from tests.command import suite
from tests.synthetic import synthetic_manifest

RUN = ("run", "--backend", "deepspeed", "--size", "1M", "--ranks", "1", "--repeats", "2", "--iterations", "3")


def test_what_was_measured_before_a_patch_is_not_done_after_it(
    tmp_path: Path, script: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(code: str) -> list[str]:
        monkeypatch.setattr("suite.conduct.planning.machine.stack_code", lambda python, packages: {"deepspeed": code})
        script()
        told = suite(*RUN, "--runs", tmp_path, "--dry-run").stdout
        return [state for state in ("to run", "done") if f"2 {state}; nothing was run" in told]

    assert planned("release") == ["to run"]
    done = suite(*RUN, "--runs", tmp_path, "--python", "/usr/bin/python3")
    assert done.exit_code == 0, done.output
    assert (planned("release"), planned("patched")) == (["done"], ["to run"])
    bundle = next(tmp_path.glob("deepspeed-*"))
    assert json.loads((bundle / "manifest.json").read_text())["stack_code"] == {"deepspeed": "release"}
    assert json.loads((bundle / "environment.json").read_text())["interpreter"] == "/usr/bin/python3"


def test_a_manifest_without_code_keeps_its_bytes_and_a_rerun_on_other_code_is_refused() -> None:
    assert "stack_code" not in synthetic_manifest().model_dump_json()
    made = synthetic_manifest(code="release")
    assert made.hash != synthetic_manifest().hash and made.work_hash == synthetic_manifest().work_hash
    require_same_stack(made, made.stack, {"deepspeed": "release"})
    with pytest.raises(UsageError, match="was measured with other code of deepspeed"):
        require_same_stack(made, made.stack, {"deepspeed": "patched"})
