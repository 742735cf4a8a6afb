"""The script that builds programs of Kubernetes makes each once for what it is made from. The compiler is played."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes_server.server import ROOT

BUILD = ROOT / "tests" / "kubernetes_server" / "build"
#: writes what it is told to make, and counts
GO = """#!/bin/sh
[ "$1" = build ] || { echo "go version $VERSION"; exit; }
while [ $# -gt 0 ]; do [ "$1" != -o ] || made=$2; shift; done
echo "made with $VERSION" >"$made"; chmod +x "$made"; echo >>"$COUNT"
"""


class Compiler:
    """Its version, and how often it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.version = folder, "1"
        (folder / "go").write_text(GO)
        (folder / "go").chmod(0o755)

    def build(self, *programs: str) -> int:
        own = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "VERSION": self.version,
            "COUNT": str(self.folder / "count"),
        }
        return subprocess.run([str(BUILD), str(self.folder / "built"), *programs], env={**os.environ, **own}).returncode

    def count(self) -> int:
        return len((self.folder / "count").read_text())


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


def test_a_program_is_made_once_and_again_by_another_compiler(compiler: Compiler) -> None:
    for version, count in (("1", 1), ("1", 1), ("2", 2)):
        compiler.version = version
        assert compiler.build("pause") == 0
        assert compiler.count() == count
    assert (compiler.folder / "built" / "pause").read_text() == "made with 2\n"


def test_one_whose_origin_is_not_known_is_made_again(compiler: Compiler) -> None:
    assert compiler.build("pause") == 0
    (compiler.folder / "built" / "pause.made-from").unlink()
    assert compiler.build("pause") == 0
    assert compiler.count() == 2


def test_a_program_that_there_is_not_is_bad_usage(compiler: Compiler) -> None:
    assert compiler.build("kubectl") == 2
    assert not (compiler.folder / "count").exists()
