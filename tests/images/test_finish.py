"""finish.sh, which an image build runs in its builder stages: the same packages give the same bits."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "requirements" / "images" / "finish.sh"
EPOCH = 1_700_000_000


def installed(root: Path, note: str) -> Path:
    """What uv leaves of two packages, one of them with a note of when its wheel was read."""
    site = root / "opt" / "stack" / "lib" / "site-packages"
    for package in ("alpha", "beta"):
        folder = site / package
        (folder / "tests").mkdir(parents=True)
        (folder / "__init__.py").write_text(
            f"KINDS = frozenset({{'a', 'b', '{package}'}})\nsame = 'shared' + __name__\n"
        )
        (folder / "tests" / "test_all.py").write_text("assert True\n")
    (site / "broken.py").write_text("def (:\n")
    record = site / "alpha-1.dist-info"
    record.mkdir()
    (record / "uv_cache.json").write_text(note)
    digest = hashlib.sha256(note.encode()).hexdigest()
    (record / "RECORD").write_text(f"alpha/__init__.py,sha256=1,2\nalpha-1.dist-info/uv_cache.json,sha256={digest},9\n")
    return root / "opt" / "stack"


def finished(root: Path, note: str) -> Path:
    """The tree that COPY takes."""
    stack, tree = installed(root, note), root / "image"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "TREE": str(tree)}
    for words in (("compile", sys.executable, "/tests/", str(stack)), ("lay", str(stack))):
        subprocess.run(("bash", str(SCRIPT), *words), env=environment, check=True, capture_output=True)
    return tree


def bits(tree: Path, root: Path) -> dict[str, tuple]:
    """Each path with its date, rights and content."""
    return {
        str(path.relative_to(tree)).replace(str(root).lstrip("/"), "."): (
            path.lstat().st_mtime,
            path.lstat().st_mode,
            None if path.is_dir() else path.read_bytes().replace(bytes(root), b"."),
        )
        for path in sorted(tree.rglob("*"))
    }


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """The same packages, finished at two times in folders whose paths are equally long."""
    found = []
    for note in ('{"timestamp": 1}', '{"timestamp": 2}'):
        root = tmp_path_factory.mktemp("finish")
        found.append((finished(root, note), root))
    return found


def test_the_same_packages_have_the_same_bits_and_dates_folders_above_them_too(twice: list[tuple[Path, Path]]) -> None:
    first, second = (bits(*one) for one in twice)
    names = {path: content for path, content in first.items() if path != "."}
    compiled = {path for path in names if path.endswith(".pyc")}
    assert first.keys() == second.keys() and len(compiled) == 2
    assert {path for path in first if first[path][:2] != second[path][:2]} == set()
    plain = first.keys() - compiled
    assert {path for path in plain if first[path] != second[path]} == set()
    assert {moment for moment, _, _ in first.values()} == {EPOCH}


def test_what_uv_notes_of_a_wheel_is_gone_from_files_and_record(twice: list[tuple[Path, Path]]) -> None:
    for tree, _ in twice:
        assert list(tree.rglob("uv_cache.json")) == []
        (record,) = tree.rglob("RECORD")
        assert record.read_text() == "alpha/__init__.py,sha256=1,2\n"


def test_compiled_files_are_not_checked_against_their_source_and_what_is_laid_takes_no_room_of_its_own(twice):
    tree, root = twice[0]
    for compiled in tree.rglob("*.pyc"):
        assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 0b01, "by hash, unchecked"
    (laid,) = tree.rglob("RECORD")
    (own,) = (root / "opt").rglob("RECORD")
    assert laid.stat().st_ino == own.stat().st_ino
