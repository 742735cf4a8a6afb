"""Becoming the owner of the results folder: what a container does that does not know who asks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.launch import as_owner

ROOT = Path(__file__).resolve().parents[2]
WHO = "import json, os, getpass; print(json.dumps([os.getuid(), os.getgid(), os.getgroups(), getpass.getuser()]))"


def run_as_owner(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", as_owner.__name__, *arguments)
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_root_becomes_the_owner_and_has_a_name_without_a_passwd_entry(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 23456)
    done = run_as_owner(str(tmp_path), "/usr/bin/env", "python3", "-c", WHO)
    assert json.loads(done.stdout) == [12345, 23456, [], "uid-12345"]
    assert run_as_owner(str(tmp_path), "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize("arguments", [(), ("folder",), ("/no/such/folder", "true"), (".", "/no/such/program")])
def test_what_cannot_be_done_is_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    done = run_as_owner(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Traceback" not in done.stderr
