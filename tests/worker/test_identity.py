"""What tells a package of the stack from another of the same version."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.launch.probe import stack_code
from suite.worker.identity import identity, package_digest
from suite.worker.manifest import check_code
from suite.worker.rank import ConfigError
from tests.worker.written import write

COMMIT = "3340c2f3" * 5


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with one that is called forked-stack."""
    for name, text in (
        ("forked_stack/__init__.py", "STEP = 1\n"),
        ("forked_stack/csrc/adam.cu", "// kernel\n"),
        ("forked_stack-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: forked-stack\nVersion: 1.2\n"),
        ("forked_stack-1.2.dist-info/RECORD", "forked_stack/__init__.py,sha256=0,0\n"),
        ("forked_stack-1.2.dist-info/direct_url.json", f'{{"vcs_info": {{"commit_id": "{COMMIT}"}}}}'),
    ):
        write(tmp_path / "site", {name: text})
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return tmp_path / "site"


def told() -> dict[str, Any]:
    identity.cache_clear()
    return identity("forked-stack")


@pytest.mark.parametrize("change", ["__init__.py", "csrc/adam.cu", "added.py"])
def test_a_patched_package_of_the_same_version_is_another_and_is_refused_at_the_start(site: Path, change: str) -> None:
    before = stack_code(sys.executable, ("forked-stack", "surely-not-installed"))
    (site / "forked_stack" / "README.md").write_text("read me")
    assert before == {"forked-stack": told()["digest"]}
    assert told() == {**told(), "commit": COMMIT, "changed": False, "editable": False}
    check_code(before)
    (site / "forked_stack" / change).write_text("STEP = 2\n")
    assert told()["digest"] != before["forked-stack"]
    with pytest.raises(ConfigError, match="the code of forked-stack changed since the run was planned"):
        check_code(before)


def test_a_checkout_in_front_of_the_installed_package_is_what_is_told(site, tmp_path, monkeypatch):
    source = write(tmp_path / "source", {"forked_stack/__init__.py": "STEP = 1\n"}) / "forked_stack" / "__init__.py"
    for words in (["init"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-m", "one"]):
        subprocess.run(["git", "-C", str(tmp_path / "source"), *words], check=True, capture_output=True)
    monkeypatch.syspath_prepend(tmp_path / "source")
    clean = told()
    source.write_text("STEP = 2\n")
    assert clean["editable"] and clean["commit"] not in (None, COMMIT) and not clean["changed"]
    assert told() == {**clean, "digest": told()["digest"], "changed": True} and told()["digest"] != clean["digest"]


def test_of_a_large_library_the_ends_are_read(tmp_path: Path) -> None:
    digests = set()
    for content in (bytes(5 << 20), b"1" + bytes((5 << 20) - 1), bytes((5 << 20) - 1) + b"1", bytes(6 << 20)):
        (tmp_path / "large.so").write_bytes(content)
        digests.add(package_digest(str(tmp_path), (".so",)))
    assert len(digests) == 4
