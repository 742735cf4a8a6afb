"""The house rules: who may import whom, how long a module may be, and what no file may hold."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import size
from tests.lanes.changed import imports, parsed

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "suite"
MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))
WORKER_MODULES = [path for path in MODULES if path.parts[1] == "worker"]
DRIVER_MODULES = [path for path in MODULES if path.parts[1] != "worker"]

LONGEST_MODULE_LINES = 400
#: From the lowest to the highest.
FLOORS = (
    {"spec", "stats"},
    {"theory", "backends", "launch", "claims"},
    {"bundle"},
    {"planner", "conduct", "images", "report", "export", "tune"},
    {"cli", "api", "testing"},
    {"__main__"},
)
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
TRAINING = {"torch", "accelerate", "deepspeed", "megatron", "tokenizers", "transformer_engine", "transformers", "trlx"}
#: Trainers in environments and images of their own, which alone import these modules.
TRAINERS = {"trl", "datasets", "verl", "hydra", "omegaconf", "pandas", "openrlhf", "torchdata", "nemo_rl"}
STACK = TRAINING | {"pynvml", "vllm", "ray"} | TRAINERS
HEAVY = TRAINING | {"numpy", "scipy", "matplotlib", "pydantic", "docker", "kubernetes", "jinja2", "yaml", "requests"}
#: What may not be loaded with a module, or with several.
LIGHT = {
    "suite.cli.main": HEAVY,
    "suite.api": {"pandas", "polars", "pyarrow", "numpy", "scipy", "matplotlib", "typer"},
    "suite.bundle.store": {"numpy", "scipy", "torch"},
    "suite.launch.node": HEAVY - {"pydantic"},  # it runs in images, beside the stack alone
    "suite.stats.turns, suite.stats.steady_state, suite.stats.moderated, suite.stats.quantiles": {"numpy", "scipy"},
}


def own_parts(path: Path) -> set[str]:
    """The parts of suite (``spec``, ``stats`` ...) that a file imports, its own left out."""
    parts = {name.split(".")[1] for name in imports(str(path)) if name.startswith("suite.")}
    return parts - {part_of(path)}


def part_of(path: Path) -> str:
    return path.with_suffix("").parts[1]


def is_above(part: str, path: Path) -> bool:
    return FLOOR_OF.get(part, 99) > FLOOR_OF[part_of(path)]


def top_level(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(str(path))}


class TestLayers:
    def test_every_part_of_the_suite_has_a_floor(self) -> None:
        assert {part_of(path) for path in DRIVER_MODULES} - {"__init__"} <= FLOOR_OF.keys()

    def test_nothing_imports_upward_or_the_worker(self) -> None:
        modules = [path for path in DRIVER_MODULES if path != Path("suite/__init__.py")]
        above = {str(path): sorted(part for part in own_parts(path) if is_above(part, path)) for path in modules}
        wrong = {path: parts for path, parts in above.items() if parts}
        assert not wrong, f"modules that import from above them: {wrong}; floors: {FLOORS}; nobody imports the worker"

    def test_parts_do_not_import_each_other_in_a_circle_of_any_length(self) -> None:
        uses: dict[str, set[str]] = {part: set() for part in FLOOR_OF}
        for path in DRIVER_MODULES:
            if part_of(path) in uses:
                uses[part_of(path)] |= own_parts(path)
        graphlib.TopologicalSorter(uses).prepare()  # or it raises, and names them

    def test_only_the_worker_imports_a_training_stack(self) -> None:
        assert not [str(path) for path in DRIVER_MODULES if top_level(path) & TRAINING]

    def test_the_worker_imports_the_standard_library_the_stack_and_itself(self) -> None:
        allowed = STACK | set(sys.stdlib_module_names) | {"suite"}
        strangers = {str(path): sorted(top_level(path) - allowed) for path in WORKER_MODULES}
        assert not {path: names for path, names in strangers.items() if names}, "a stack's image need not have these"
        driver = {str(path): sorted(own_parts(path)) for path in WORKER_MODULES}
        assert not {path: parts for path, parts in driver.items() if parts}, "the stack's interpreter has no driver"

    def test_importing_the_package_runs_nothing(self) -> None:
        assert (PACKAGE / "__init__.py").read_text().strip() == ""

    @pytest.mark.parametrize("modules", LIGHT)
    def test_a_module_that_is_light_imports_nothing_heavy(self, modules: str) -> None:
        code = f"import sys, {modules}; print(*{{name.split('.')[0] for name in sys.modules}})"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        loaded = set(done.stdout.split())
        assert "suite" in loaded and not LIGHT[modules] & loaded


#: Why modules open files by themselves and are safe: what is not here reads with ``suite.spec.foreign``.
OWN_FILES = {
    "the reader itself": ("spec/foreign.py",),
    "the suite's own sources and data": (
        *("spec/algorithms.py", "spec/base.py", "spec/catalogue.py", "planner/parameters.py"),
        *("bundle/cache/code.py", "cli/saved_help.py"),
        *("report/page/output.py", "report/formatting/html.py"),
    ),
    "/dev/null": ("cli/main.py",),
    "the kernel's /proc and /sys": (
        *("launch/docker/session.py", "launch/idle.py", "launch/local.py", "launch/probe.py", "launch/processes.py"),
    ),
    "files of this checkout": ("images/check.py",),
    "the image that it runs in, while it is built": ("images/inventory.py",),
    "files of this checkout, and wheels that pip has just put there": ("images/project.py",),
    "writes a log, and a file of this checkout": ("images/build.py",),
    "a file that the same command has just written": ("cli/output.py",),
    "writes, locks through no link, and syncs folders": ("bundle/files.py",),
    "writes files that are not there yet": (
        *("bundle/archive/opening.py", "bundle/archive/scrubbing.py", "launch/docker/session.py"),
        *("export/tools/tensorboard.py", "export/export.py", "launch/cluster/submission.py"),
    ),
    "writes a draft that is not there yet; the package's own licence": ("bundle/archive/packing.py",),
    "writes a bundle that it has just made": ("conduct/cluster/standing.py",),
    "the driver's own log and lock, through no link": ("bundle/store.py",),
    "the user's own cache, through no link": ("bundle/cache/database.py",),
    "the user's own key, which must be theirs alone": ("conduct/running/provenance.py",),
}
MODE = re.compile(r"[rwaxbt+]+")


def opens_files(path: Path) -> bool:
    """Whether a module opens a file by something else than ``suite.spec.foreign``."""
    for node in ast.walk(parsed(str(path))):
        if not isinstance(node, ast.Call):
            continue
        called, first = node.func, node.args[0] if node.args else None
        if isinstance(called, ast.Name) and called.id == "open":
            return True
        if isinstance(called, ast.Attribute):
            owner = called.value.id if isinstance(called.value, ast.Name) else None
            if called.attr in ("read_text", "read_bytes") and owner != "foreign":
                return True
            mode = isinstance(first, ast.Constant) and MODE.fullmatch(str(first.value))
            if called.attr == "open" and (owner in ("os", "io") or mode or (first is None and owner != "tarfile")):
                return True
    return False


def test_files_that_others_wrote_are_opened_in_one_way() -> None:
    found = {str(path) for path in DRIVER_MODULES if opens_files(path)}
    safe = {f"suite/{file}" for files in OWN_FILES.values() for file in files}
    assert found - safe == set(), "read what others wrote with suite.spec.foreign, or say why it is safe"
    assert safe - found == set(), "these open no file any more"


def test_a_module_is_short_enough_to_have_one_job() -> None:
    lines = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in MODULES}
    long = {path: count for path, count in lines.items() if count > LONGEST_MODULE_LINES}
    assert not long, f"modules of more than {LONGEST_MODULE_LINES} lines, to be split by job: {long}"


def test_no_room_is_larger_than_its_budget() -> None:
    found = size.sizes()
    over = [
        f"{' + '.join(one.rooms)}: {one.lines:,} lines of {one.budget:,}" for one in found if one.lines > one.budget
    ]
    assert not over, f"take something away, or say in docs/development.md why a room has to grow: {over}"
    named = [room for one in found for room in one.rooms]
    rooms = {part_of(path) for path in MODULES} - {"__init__", "__main__"} | set(size.FOLDERS)
    assert sorted(named) == sorted(rooms), "each room stands in one row of the budgets"


# written in two halves, so that this file passes its own test
PACKAGE_HOSTS = re.compile("|".join(["py" + r"pi\.org", "python" + r"hosted\.org", r"download\.py" + r"torch\.org"]))
# Ray's published images have their Python in a home folder, the same in each of them
HOME_FOLDER = re.compile(r"(?<![\w.~}-])/(?:home/(?!ray/anaconda3/)[a-z]|Users/[A-Za-z]|root/)")


class TestHygiene:
    @pytest.mark.parametrize(
        ("pattern", "why"),
        [
            (PACKAGE_HOSTS, "where packages come from is the user's pip configuration"),
            (HOME_FOLDER, "a path of one machine means nothing on another"),
        ],
        ids=["package hosts", "home folders"],
    )
    def test_no_file_holds(self, pattern: re.Pattern[str], why: str) -> None:
        found = []
        for file in size.files():
            text = (ROOT / file).read_text(encoding="utf-8", errors="ignore")
            found += [f"{file}: {match.group()}" for match in pattern.finditer(text)]
        assert not found, f"{why}: {found}"

    def test_lock_files_name_no_index(self) -> None:
        for lock in ("driver.lock", "cpu.lock"):
            lines = (ROOT / "requirements" / lock).read_text().splitlines()
            assert not [line for line in lines if re.match(r"\s*(-i|-f|--(extra-)?index-url|--find-links)\b", line)]
