"""Commands whose standard streams are closed, or have another encoding than their words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHAPE = "name: Größe\nlayers: 2\nhidden: 64\nffn: 256\nheads: 4\nkv_heads: 4\nvocab: 512\npositions: 64\n"


def shell(words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = f"{sys.executable} {ROOT}/tests/scripted_suite.py {words}"
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
