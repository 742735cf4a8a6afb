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
    script()
    for code, state in (("release", "2 done"), ("patched", "2 to run")):
        monkeypatch.setattr("suite.conduct.planning.machine.stack_code", lambda *_, code=code: {"deepspeed": code})
        if code == "release":
            assert suite(*RUN, "--runs", tmp_path, "--python", "/usr/bin/python3").exit_code == 0
        assert f"{state}; nothing was run" in suite(*RUN, "--runs", tmp_path, "--dry-run").stdout
    (first, _) = tmp_path.glob("deepspeed-*")
    assert json.loads((first / "manifest.json").read_text())["stack_code"] == {"deepspeed": "release"}
    assert json.loads((first / "environment.json").read_text())["interpreter"] == "/usr/bin/python3"


def test_a_manifest_without_code_keeps_its_bytes_and_a_rerun_on_other_code_is_refused() -> None:
    plain, made = synthetic_manifest(), synthetic_manifest(code="release")
    assert "stack_code" not in plain.model_dump_json()
    assert made.hash != plain.hash and made.work_hash == plain.work_hash
    require_same_stack(made, made.stack, {"deepspeed": "release"})
    with pytest.raises(UsageError, match="was measured with other code of deepspeed"):
        require_same_stack(made, made.stack, {"deepspeed": "patched"})
