"""What is installed and how it is started: locks and pyproject agree, make has what it promises, the wheel is whole."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
DRIVER = [Requirement(line) for line in PROJECT["dependencies"]]


def locked(name: str) -> dict[str, Version]:
    """Distribution -> pinned version of a lock file; anything but pins, hashes and comments is an error."""
    pins = {}
    for line in (ROOT / "requirements" / name).read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            pin = Requirement(line.split(" --hash")[0].strip())
            (clause,) = pin.specifier
            assert clause.operator == "==", f"{name} does not pin {pin}"
            pins[canonicalize_name(pin.name)] = Version(clause.version)
    return pins


#: files beside the modules that they need to run
DATA_SUFFIXES = (".csv", ".j2", ".json", ".txt", ".yaml")
DRIVER_LOCK = locked("driver.lock")
CPU_LOCK = locked("cpu.lock")


def make(*arguments: str) -> str:
    """What make prints, without the variables of a make that may have started these tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    ).stdout


class TestLocks:
    def test_both_locks_pin_what_they_share_alike(self) -> None:
        shared = DRIVER_LOCK.keys() & CPU_LOCK.keys()
        assert {"numpy", "pydantic"} <= shared
        assert {name: DRIVER_LOCK[name] for name in shared} == {name: CPU_LOCK[name] for name in shared}

    @pytest.mark.parametrize("wanted", [*DRIVER, *EXTRAS["plots"], *EXTRAS["test"], *EXTRAS["quality"]], ids=str)
    def test_the_driver_lock_pins_what_pyproject_asks_for(self, wanted: Requirement) -> None:
        assert DRIVER_LOCK[canonicalize_name(wanted.name)] in wanted.specifier

    def test_the_worker_extra_its_lock_and_its_input_name_the_same_versions(self) -> None:
        asked = (ROOT / "requirements/cpu.in").read_text().splitlines()
        assert [line for line in asked if not line.startswith("#")] == sorted(str(entry) for entry in EXTRAS["worker"])
        for entry in EXTRAS["worker"]:
            assert f"=={CPU_LOCK[canonicalize_name(entry.name)]}" == str(entry.specifier)

    def test_every_pin_of_the_driver_lock_has_a_hash(self) -> None:
        text = (ROOT / "requirements/driver.lock").read_text()
        blocks = re.split(r"\n(?=\S)", text)[1:]
        assert len(blocks) == len(DRIVER_LOCK)
        assert not [block.split()[0] for block in blocks if "--hash=sha256:" not in block]

    def test_torch_is_left_to_bring_its_own_cuda_packages(self) -> None:
        assert not [name for name in CPU_LOCK if re.match(r"nvidia-|cuda-|triton", name)]
        assert CPU_LOCK["torch"].local is None

    def test_what_is_installed_is_what_is_locked(self) -> None:
        wrong = {}
        for name, pin in {**CPU_LOCK, **DRIVER_LOCK}.items():
            try:
                found = Version(version(name))
            except PackageNotFoundError:
                continue
            if Version(found.public) != pin:
                wrong[name] = f"{found}, locked {pin}"
        assert not wrong, "run `make test`, which installs the locked versions"


class TestMake:
    def test_help_lists_every_target_and_pages_name_no_other(self) -> None:
        listed = set(re.findall(r"^  make ([a-z-]+)", make("help"), flags=re.MULTILINE))
        (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert listed == set(phony.split())
        for page in ("README.md", "docs/development.md", "CHANGELOG.md"):
            named = set(re.findall(r"(?:`|^)make ([a-z-]+)", (ROOT / page).read_text(), flags=re.MULTILINE))
            assert named and not named - listed, page

    def test_every_install_is_from_a_lock_or_from_this_checkout(self) -> None:
        recipes = make("-B", "-n", "bench").splitlines()
        installs = [shlex.split(line.partition("||")[0]) for line in recipes if " pip install " in line]
        sources = [" ".join(words[-2:]) for words in installs]
        assert sources == ["-r requirements/driver.lock", "-r requirements/cpu.lock", "-e ."]
        assert "--require-hashes" in installs[0]
        assert "--no-deps" in installs[2]

    def test_torch_cpu_installs_the_cpu_build_of_the_lock_before_the_lock_and_from_the_index_that_is_named(self):
        index = "https://index.example/cpu"
        recipes = make("-B", "-n", "bench", "TORCH=cpu", f"TORCH_INDEX={index}").splitlines()
        first, *rest = [line for line in recipes if " pip install " in line]
        assert f'--no-deps --index-url {index} "$(grep -oE' in first and first.count("+cpu") == 1
        assert len(rest) == 3 and not [line for line in rest if index in line]
        assert "index-url" not in make("-B", "-n", "bench", "TORCH=cpu")

    def test_another_torch_than_cpu_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            make(f"VENV={tmp_path / 'venv'}", f"{tmp_path / 'venv'}/.installed", "TORCH=cuda")
        assert "TORCH=cuda is not known" in refused.value.stdout

    def test_ci_installs_python_packages_through_make_alone(self) -> None:
        script = (ROOT / ".ci/run").read_text()
        assert os.access(ROOT / ".ci/run", os.X_OK)
        assert "make test-all" in script
        assert not re.search(r"\bpip3?\b", script)


def test_every_message_and_page_names_the_distribution_and_an_extra_that_it_has() -> None:
    assert PROJECT["name"] == "rlhf-suite" and list(PROJECT["scripts"]) == ["suite"]
    sources = [*(ROOT / "suite").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    named = {Requirement(found) for found in re.findall(r"pip install '([\w-]+\[\w+\])'", text)}
    assert {each.name for each in named} == {"rlhf-suite"}
    assert {extra for each in (*named, *EXTRAS["export"]) for extra in each.extras} <= EXTRAS.keys()


@pytest.mark.slow
def test_the_wheel_holds_the_data_and_the_worker_and_is_enough_outside_of_a_checkout(tmp_path: Path) -> None:
    wheel_builder = pytest.importorskip("hatchling.builders.wheel", reason="the build tools come with `make test`")
    (built,) = wheel_builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    with zipfile.ZipFile(built) as archive:
        held = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    data = {path.relative_to(ROOT) for path in (ROOT / "manifests").rglob("*") if path.is_file()}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "suite").rglob("*") if path.suffix in DATA_SUFFIXES}
    assert data and "suite/worker/phases.json" in package
    assert {f"suite/{path}" for path in data} | package <= held
    assert {"suite/py.typed", "suite/worker/__main__.py", "suite/worker/engines/base.py"} <= held
    assert not [name for name in held if name.startswith("tests/")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "SUITE_CACHE": "off"}
    for words in ("--help", "sizes", "plan --preset grpo-8b", "run --size 1M --ranks 1 --dry-run"):
        command = [sys.executable, "-m", "suite", *words.split()]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout, (words, done.stderr[-2000:])
