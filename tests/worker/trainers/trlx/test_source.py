"""Which trlx would be imported: absent, another commit, or the measured one; by its files alone."""

from __future__ import annotations

import builtins
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.worker.rank import ConfigError
from suite.worker.trainers.trlx import source as trlx_source

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package called trlx that is none, named as the source."""
    package = tmp_path / "trlx"
    (package / "trainer").mkdir(parents=True)
    (package / "__init__.py").write_text("from trlx import nothing\n")
    (package / "trainer" / "__init__.py").write_text("")
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(tmp_path))
    return tmp_path


def test_the_digest_sees_every_python_file_and_nothing_else(checkout: Path) -> None:
    first = trlx_source.package_digest(str(checkout / "trlx"))
    (checkout / "trlx" / "README.md").write_text("read me")
    (checkout / "trlx" / "__pycache__").mkdir()
    (checkout / "trlx" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    assert trlx_source.package_digest(str(checkout / "trlx")) == first
    (checkout / "trlx" / "trainer" / "__init__.py").write_text("\n")
    changed = trlx_source.package_digest(str(checkout / "trlx"))
    (checkout / "trlx" / "trainer" / "__init__.py").rename(checkout / "trlx" / "trainer" / "other.py")
    assert len({first, changed, trlx_source.package_digest(str(checkout / "trlx"))}) == 3


def test_the_measured_commit_is_found_in_front_of_the_path_and_another_one_is_named_with_what_to_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = f"the trlx in {checkout / 'trlx'} is not commit 3340c2f3, or its files were changed; install"
    assert told in str(trlx_source.trlx_problem())
    with pytest.raises(ConfigError, match="not commit 3340c2f3"):
        trlx_source.use_trlx()
    monkeypatch.setattr(trlx_source, "DIGEST", trlx_source.package_digest(str(checkout / "trlx")))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert trlx_source.use_trlx() == str(checkout / "trlx")
    assert sys.path[0] == str(checkout)


def test_a_checkout_on_the_path_is_not_taken_for_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "trlx" / "trlx"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.delenv(trlx_source.SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert str(trlx_source.trlx_problem()).startswith(f"there is no trlx for {sys.executable}; install")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "trlx")])
    assert str(trlx_source.trlx_problem()).startswith(f"the trlx in {package} is not commit")


@pytest.mark.parametrize("name", ["", "trlx", "nowhere", "trlx/__init__.py"])
def test_what_is_not_a_folder_that_holds_the_package_holds_no_trlx(
    name: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(checkout / "trlx"))
    assert "name the folder that holds the package, not the package" in str(trlx_source.trlx_problem())
    (checkout / "trlx" / "__init__.py").rename(checkout / "trlx" / "init.py")
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(checkout / name))
    assert f"there is no trlx in {checkout / name}; install" in str(trlx_source.trlx_problem())


@pytest.mark.parametrize("name", ["trlx", "trlx/trainer", "trlx/trainer/__init__.py"])
def test_a_source_that_cannot_be_read_is_named_and_raises_nothing(
    name: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = str(checkout / name)

    def deny(call: Any) -> Any:
        def denying(path: Any, *arguments: Any) -> Any:
            if str(path) == denied:
                raise PermissionError(errno.EACCES, "Permission denied", denied)
            return call(path, *arguments)

        return denying

    # the superuser of a test machine may read everything, so the system's answers are stood in for
    for module, name in ((os, "listdir"), (os, "scandir"), (builtins, "open")):
        monkeypatch.setattr(module, name, deny(getattr(module, name)))
    problem = trlx_source.trlx_problem()
    assert problem is not None and problem.startswith(f"{denied} cannot be read (Permission denied); install")


TRANSFORMERS, ENGINE, IMPORTS = "transformers_problem", "engine_problem", "imports_problem"


@pytest.mark.parametrize(
    ("problem", "found", "words"),
    [
        (TRANSFORMERS, {}, "transformers is missing"),
        (TRANSFORMERS, {"transformers": "4.27.4"}, "too old"),
        (TRANSFORMERS, {"transformers": "4.28.1"}, None),
        (TRANSFORMERS, {"transformers": "5.23.0"}, None),
        (TRANSFORMERS, {"transformers": "5.24.0"}, "5.24.0 is too new for trlx's own code; install"),
        (ENGINE, {"accelerate": "1.9.0", "deepspeed": "0.19.8"}, None),
        (ENGINE, {"accelerate": "1.8.1", "deepspeed": "0.19.8"}, "for deepspeed 0.19.8; install accelerate 1.15.0"),
        (ENGINE, {"accelerate": "0.22.0", "deepspeed": "0.16.0"}, "too old for deepspeed 0.16.0"),
        (ENGINE, {"accelerate": "0.22.0", "deepspeed": "0.10.1"}, None),
        (ENGINE, {"deepspeed": "0.19.8"}, None),
        (ENGINE, {"accelerate": "0.22.0"}, None),
        (IMPORTS, {"transformers": "4.33.3"}, None),
        (IMPORTS, {"peft": "0.13.2", "transformers": "4.33.3"}, None),
        (IMPORTS, {"peft": "0.14.0", "transformers": "4.35.2"}, "peft 0.14.0 is too new"),
        (IMPORTS, {"peft": "0.14.0", "transformers": "4.36.0"}, None),
    ],
)
def test_versions_that_trlx_does_not_run_on_are_told(
    problem: str, found: dict[str, str], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trlx_source.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(trlx_source, "installed_version", found.get)
    told = getattr(trlx_source, problem)()
    assert told is None if words is None else words in told


@pytest.mark.parametrize("image", ["trlx", "upstream", "nemo"])
def test_the_images_hold_a_transformers_that_trlx_runs_on(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = (ROOT / "requirements" / "images" / f"{image}.in").read_text().split()
    (version,) = [pin.removeprefix("transformers==") for pin in pins if pin.startswith("transformers==")]
    monkeypatch.setattr(trlx_source, "installed_version", lambda package: version)
    assert trlx_source.transformers_problem() is None


def test_what_trlx_imports_and_nobody_installed_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"rich", "pandas", "pyarrow", "tqdm", "deepspeed", "wandb"}
    monkeypatch.setattr(trlx_source.importlib.util, "find_spec", lambda name: name if name in found else None)
    missing = "accelerate, ray, torchtyping"  # what NeMo's trainer does not need of trlx is imported with it
    expected = f"trlx imports {missing}, which {sys.executable} lacks; install {missing}"
    assert trlx_source.imports_problem() == expected


def test_the_driver_can_ask_without_torch(checkout: Path) -> None:
    code = (
        "import sys, runpy; runpy.run_module('suite.worker.trainers.trlx.source', run_name='__main__'); "
        "assert 'torch' not in sys.modules"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert set(json.loads(answer.stdout)) == {"trlx", "transformers", "imports", "engine"}
