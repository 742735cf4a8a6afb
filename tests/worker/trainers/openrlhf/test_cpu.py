"""OpenRLHF's patches on a CPU reach a module as it is imported, and no other."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import suite
from suite.worker.trainers.openrlhf import _START_UP, cpu

ROOT = Path(next(iter(suite.__path__))).resolve().parent


def test_a_module_is_patched_after_its_own_code_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "patched_one.py").write_text("value = lent")
    (tmp_path / "plain_one.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)

    def after(module: Any) -> None:
        module.value += 1

    patch = cpu.Patch("p", "patched_one", "because", before=lambda: setattr(sys, "lent", 41), after=after)
    (tmp_path / "patched_one.py").write_text("import sys\nvalue = sys.lent")
    monkeypatch.setattr(sys, "meta_path", [cpu.Finder([patch]), *sys.meta_path])
    monkeypatch.setattr(sys, "lent", 0, raising=False)
    assert importlib.import_module("patched_one").value == 42
    assert importlib.import_module("plain_one").value == 1


def test_every_process_that_finds_the_folder_installs_the_patches_once() -> None:
    code = "import sys; from suite.worker.trainers.openrlhf import cpu; cpu.install(); cpu.install(); " + (
        "print(sum(isinstance(each, cpu.Finder) for each in sys.meta_path), 'torch' in sys.modules)"
    )
    path = os.pathsep.join((_START_UP, str(ROOT)))
    said = subprocess.run(
        (sys.executable, "-c", code), env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["1", "False"]
