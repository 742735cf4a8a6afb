"""Which tests `make check` runs: of the rooms that a change touches, and of those that import what it touches."""

import ast
import os
import subprocess
from functools import cache
from pathlib import Path

from tests.lanes import size

ROOT = Path(__file__).resolve().parents[2]
#: always: the rules of the house and what is packaged
ALWAYS = ("tests/test_house.py",)


def changed_files() -> set[str]:
    """Since BASE, by default where this branch left main (on main: the commit that is there), committed or not."""
    base = os.environ.get("BASE") or _git("merge-base", "HEAD", "main") or "HEAD"
    return {
        *_git("diff", "--name-only", base).split("\n"),
        *_git("ls-files", "-o", "--exclude-standard").split("\n"),
    } - {""}


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True).stdout.strip()


def chosen_tests(files: set[str]) -> list[str]:
    """Paths for pytest."""
    touched = {file for file in files if file.endswith(".py") and (ROOT / file).exists()}
    every = size.files("suite/*.py", "tests/*.py")
    users = [path for path in every if path not in touched and imports(path) & set(map(_module, touched))]
    rooms = {Path(file).parts[1] for file in (*files, *users) if file.startswith("suite/")}
    chosen = {f"tests/{room.removesuffix('.py')}" for room in rooms} | {f"tests/test_{room}" for room in rooms}
    chosen |= {file for file in (*touched, *users) if Path(file).name.startswith("test_") and file.startswith("tests/")}
    if any(not file.startswith(("suite/", "tests/")) for file in files):  # documents, packaging, images, manifests
        chosen |= {str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py")}
    there = sorted(path for path in chosen.union(ALWAYS) if (ROOT / path).exists())
    return [path for path in there if not any(path.startswith(f"{other}/") for other in there)]


@cache
def imports(file: str) -> set[str]:
    """Dotted names of the modules of this checkout that a file imports itself, inside of functions too."""
    found = set()
    package = Path(file).parent.parts
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (*package[: len(package) - node.level + 1], node.module) if node.level else (node.module,)
            name = ".".join(part for part in base if part)
            found |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
    return found


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def _module(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
