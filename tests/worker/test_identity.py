"""What tells a package of the stack from another of the same version."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from suite.launch.probe import stack_code
from suite.worker.identity import identity, package_digest
from suite.worker.manifest import check_code
from suite.worker.rank import ConfigError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with one that is called forked-stack."""
    (tmp_path / "site" / "forked_stack" / "csrc").mkdir(parents=True)
    (tmp_path / "site" / "forked_stack" / "__init__.py").write_text("STEP = 1\n")
    (tmp_path / "site" / "forked_stack" / "csrc" / "adam.cu").write_text("// kernel\n")
    info = tmp_path / "site" / "forked_stack-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: forked-stack\nVersion: 1.2\n")
    (info / "RECORD").write_text("forked_stack/__init__.py,sha256=0,0\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    identity.cache_clear()
    return tmp_path / "site"


def asked() -> str:
    return stack_code(sys.executable, ("forked-stack", "surely-not-installed"))["forked-stack"]


@pytest.mark.parametrize("change", ["__init__.py", "csrc/adam.cu", "added.py"])
def test_a_patched_package_of_the_same_version_is_another_and_is_refused_at_the_start(site: Path, change: str) -> None:
    before = asked()
    check_code({"forked-stack": before})
    (site / "forked_stack" / "README.md").write_text("read me")
    assert asked() == before
    (site / "forked_stack" / change).write_text("STEP = 2\n")
    assert asked() != before
    identity.cache_clear()
    with pytest.raises(ConfigError, match="the code of forked-stack changed since the run was planned"):
        check_code({"forked-stack": before})


def test_a_commit_is_that_of_the_installation(site: Path) -> None:
    told = {"url": "https://example.org/fork.git", "vcs_info": {"vcs": "git", "commit_id": "3340c2f3" * 5}}
    (site / "forked_stack-1.2.dist-info" / "direct_url.json").write_text(json.dumps(told))
    found = identity("forked-stack")
    assert found == {**found, "commit": "3340c2f3" * 5, "changed": False, "editable": False}
    assert identity("surely-not-installed") is None


def test_a_checkout_in_front_of_the_installed_package_is_what_is_told(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "forked_stack").mkdir(parents=True)
    (source / "forked_stack" / "__init__.py").write_text("STEP = 1\n")

    def git(*words: str) -> None:
        named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(("git", "-C", str(source), *named, *words), check=True, capture_output=True)

    git("init")
    git("add", "forked_stack")
    git("commit", "-m", "one")
    monkeypatch.syspath_prepend(source)
    clean = identity("forked-stack")
    (source / "forked_stack" / "__init__.py").write_text("STEP = 2\n")
    identity.cache_clear()
    dirty = identity("forked-stack")
    assert clean["editable"] and len(clean["commit"]) == 40 and not clean["changed"]
    assert dirty == {**clean, "digest": dirty["digest"], "changed": True} and dirty["digest"] != clean["digest"]


def test_of_a_large_library_the_ends_are_read(tmp_path: Path) -> None:
    library = tmp_path / "large.so"
    digests = set()
    for content in (bytes(5 << 20), b"1" + bytes((5 << 20) - 1), bytes((5 << 20) - 1) + b"1", bytes(6 << 20)):
        library.write_bytes(content)
        digests.add(package_digest(str(tmp_path), (".so",)))
    assert len(digests) == 4
