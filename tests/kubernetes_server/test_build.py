"""The script that builds programs of Kubernetes makes each once for all checkouts. The compiler is played."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes_server.server import ROOT

BUILD = ROOT / "tests" / "kubernetes_server" / "build"
#: writes what it is told to make, and counts; dies in the middle of it where it is told to
GO = """#!/bin/sh
[ "$1" = build ] || { echo "go version $VERSION"; exit; }
while [ $# -gt 0 ]; do [ "$1" != -o ] || made=$2; shift; done
echo >>"$COUNT"
printf 'made with ' >"$made"
[ -z "$KILLED" ] || kill -9 $$
echo "$VERSION" >>"$made"; chmod +x "$made"
"""


class Compiler:
    """Its version, and how often it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.version, self.killed = folder, "1", ""
        self.cache = folder / "cache"
        (folder / "go").write_text(GO)
        (folder / "go").chmod(0o755)

    def build(self, *programs: str, checkout: str = "built") -> int:
        own = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "VERSION": self.version,
            "KILLED": self.killed,
            "COUNT": str(self.folder / "count"),
            "SUITE_TEST_CACHE": str(self.cache),
        }
        command = [str(BUILD), str(self.folder / checkout), *programs]
        return subprocess.run(command, env={**os.environ, **own}).returncode

    def built(self, checkout: str = "built") -> str:
        program = self.folder / checkout / "pause"
        assert os.access(program, os.X_OK)
        return program.read_text()

    def kept(self) -> Path:
        (program,) = self.cache.glob("kubernetes/*/pause")
        return program

    def count(self) -> int:
        return len((self.folder / "count").read_text())


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


def test_a_program_is_made_once_and_again_by_another_compiler(compiler: Compiler) -> None:
    for version, count in (("1", 1), ("1", 1), ("2", 2), ("1", 2)):
        compiler.version = version
        assert compiler.build("pause") == 0
        assert compiler.count() == count
        assert compiler.built() == f"made with {version}\n"


@pytest.mark.parametrize("damage", ["none", "changed", "without its digest"])
def test_another_checkout_takes_a_copy_of_what_was_made_before_unless_it_is_damaged(compiler, damage):
    assert compiler.build("pause", checkout="first") == 0
    kept = compiler.kept()
    if damage == "without its digest":
        kept.with_name("pause.sha256").unlink()
    elif damage != "none":
        kept.write_text("made with 3\n")
    for checkout in ("second", "third"):
        assert compiler.build("pause", checkout=checkout) == 0
        assert compiler.built(checkout) == "made with 1\n"
    assert compiler.count() == (1 if damage == "none" else 2)


def test_a_build_that_is_killed_leaves_nothing_that_is_taken(compiler: Compiler) -> None:
    compiler.killed = "yes"
    assert compiler.build("pause") != 0
    assert not list(compiler.cache.glob("kubernetes/*/*"))
    compiler.killed = ""
    assert compiler.build("pause") == 0
    assert compiler.built() == "made with 1\n"
