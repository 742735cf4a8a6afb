"""The entry point: standard streams that are closed or of another encoding, and Ctrl-C before there is a command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SHAPE = "name: Größe\nlayers: 2\nhidden: 64\nffn: 256\nheads: 4\nkv_heads: 4\nvocab: 512\npositions: 64\n"


def shell(words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = f"{shlex.join((sys.executable, str(ROOT / 'tests/scripted_suite.py')))} {words}"
    return subprocess.run(["bash", "-c", script], cwd=ROOT, env={**os.environ, **environment}, capture_output=True)


def test_a_run_with_closed_streams_is_a_run_like_any_other(tmp_path: Path) -> None:
    words = f"run --backend deepspeed --device cpu --size 1M --repeats 1 --iterations 2 --runs {tmp_path / 'runs'}"
    done = shell(f"{words} <&- >&- 2>&-")
    assert done.returncode == 0
    (record,) = (tmp_path / "runs").glob("*/record.json")
    assert record.read_text().startswith("{")
    events = (record.parent / "events" / "driver.jsonl").read_text().splitlines()
    assert all(line.startswith('{"kind"') for line in events), "nothing was printed into a file of the run"


def test_what_an_encoding_does_not_have_is_shown_by_number(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(SHAPE)
    words = f"run --backend deepspeed --device cpu --shape {tmp_path / 'own.yaml'} --repeats 1 --dry-run"
    done = shell(words, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"Gr\\xf6\\xdfe" in done.stdout and done.stdout.isascii()


class Importing(ModuleType):
    """A module in whose import Ctrl-C is pressed."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("module", ["suite.cli.saved_help", "suite.cli.app"])
def test_ctrl_c_while_modules_are_imported_is_one_line_and_130(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, Importing(module))
    monkeypatch.setattr(sys, "argv", ["suite", "run", "--size", "1M"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")
