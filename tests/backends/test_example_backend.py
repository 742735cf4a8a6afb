"""A backend of another package, really installed: it keeps the contract and is measured like the suite's own."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from suite import testing
from suite.backends.deepspeed import DeepSpeed
from suite.testing import BackendContract

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tests" / "example_backend"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that holds the installed package, built without network."""
    target = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, PACKAGE], check=True)
    return target


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    command = (sys.executable, "-m", *arguments)
    return subprocess.run(command, cwd=PACKAGE, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_its_own_tests_pass_where_it_is_installed(site: Path) -> None:
    done = python(site, "pytest", "-q", "-p", "no:cacheprovider", "-m", "not ranks", "contract.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.ranks
@pytest.mark.ci
def test_two_ranks_of_it_are_measured_and_verified_by_its_own_tests(site: Path) -> None:
    done = python(site, "pytest", "-q", "-p", "no:cacheprovider", "-m", "ranks", "contract.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout


class Keeping(DeepSpeed):
    """A driver that keeps the contract."""

    name = "toy"
    packages: tuple[str, ...] = ("pytest",)


def refuse_without_words(*given: Any) -> Any:
    raise ValueError("")


STARTS_A_RANK = "test_a_rank_starts_as_a_module_with_manifest_and_bundle"
BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("test_it_is_registered_once_under_its_own_name", {"name": "another"}),
    ("test_it_says_what_it_is_in_one_line", {"kind": "toy"}),
    ("test_it_says_what_it_is_in_one_line", {"summary": "two\nlines"}),
    ("test_its_packages_are_found_with_their_versions", {"packages": ()}),
    ("test_its_packages_are_found_with_their_versions", {"packages": ("no-such-package",)}),
    ("test_its_settings_are_layout_choices", {"settings": ("zero",)}),
    ("test_a_request_is_laid_out_on_its_devices_or_refused_in_words", {"layout": refuse_without_words}),
    ("test_a_request_is_laid_out_on_its_devices_or_refused_in_words", {"errors": lambda *given: ["two\nlines"]}),
    ("test_the_run_of_this_contract_is_not_refused", {"errors": lambda *given: ["not today"]}),
    ("test_the_run_of_this_contract_is_not_refused", {"stack_errors": lambda *given: ["too old"]}),
    (STARTS_A_RANK, {"worker_argv": lambda *given: ("suite.worker", *given)}),
    (STARTS_A_RANK, {"worker_argv": lambda *given: ("-m", "suite.worker")}),
]


class Contract(BackendContract):
    backend = "toy"


def kept(monkeypatch: pytest.MonkeyPatch, kind: type[Any], name: str) -> None:
    """Raises AssertionError where a driver of this class does not keep that part of the contract."""
    point = EntryPoint(name="toy", value="toy:Toy", group="suite.backends")
    monkeypatch.setattr(EntryPoint, "load", lambda self: kind)
    monkeypatch.setattr(testing, "entry_points", lambda group: [point])
    monkeypatch.setattr(testing, "find_backend", lambda name: kind())
    monkeypatch.setattr(Contract, "interpreter", lambda self: sys.executable)
    devices = {"nodes": 1, "devices": 2} if "request" in name else {}
    getattr(Contract(), name)(**devices)


@pytest.mark.parametrize(("name", "change"), BROKEN, ids=[f"{name} {[*change]}" for name, change in BROKEN])
def test_the_contract_finds_what_a_driver_does_not_keep(name, change, monkeypatch):
    kept(monkeypatch, Keeping, name)
    methods = {name: staticmethod(value) if callable(value) else value for name, value in change.items()}
    with pytest.raises(AssertionError):
        kept(monkeypatch, type("Broken", (Keeping,), methods), name)


def test_the_contract_finds_a_driver_that_takes_the_name_of_a_backend_of_the_suite(monkeypatch):
    monkeypatch.setattr(testing, "own_backends", lambda: {"toy": Keeping()})
    with pytest.raises(AssertionError, match="the suite has a backend of that name"):
        kept(monkeypatch, Keeping, "test_it_is_registered_once_under_its_own_name")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--backend", "example-torch", "--dtype", "bf16"], "the toy computes in fp32, not in bf16"),
        (["--backend", "example-ray", "--python", f"verl={sys.executable}"], "example-ray needs ray"),
    ],
)
def test_what_it_refuses_is_told_before_the_run(asked, words, site):
    said = python(site, "suite", "run", "--size", "1M", "--device", "cpu", *asked)
    assert said.returncode == 2 and words in said.stderr
