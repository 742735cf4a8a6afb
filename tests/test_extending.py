"""docs/architecture.md, "to add X, touch Y": a toy phase, toy fields and a toy engine, in a copy of the suite.

Only the files that the table names are edited. Then the copy runs them on a real rank and tells of them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
OLD_RUNS = ROOT / "docs" / "results" / "cpu" / "runs"
TOY_PHASE = (
    '{"name": "spread", "label": "toy spread", "colour": "#D55E00", "tokens": ["response_tokens"], "optional": true}'
)
TOY_LINE = '"toy": {"driver": "suite.backends.toy:Toy", "worker": "suite.worker.engines.toy.engine:ToyEngine"},'
TURNS = 'talks: Annotated[int, Later("--talks", "talks of a sample", feature="talks of {}")] = 1\n'
FUSED = 'fused: Annotated[bool, Later("--fused", "fuse it", "switch", label="fused")] = False\n'
TIMED = '        with recorder.phase("spread"):\n            pass\n'
#: file, text in it, and what is written in front of that
EDITS = [
    ("suite/worker/phases.json", '    {"name": "sync"', f"    {TOY_PHASE},\n"),
    ("suite/worker/loop.py", "        generated = self._gen", TIMED),
    ("suite/worker/backends.json", '    "deepspeed": {', f"    {TOY_LINE}\n"),
    ("suite/spec/workload.py", "    note: str | None = None\n    source: str | None = None\n", f"    {TURNS}"),
    ("suite/spec/layout.py", "    offload_optimizer: Annotated[", f"    {FUSED}"),
]
#: files that are new: an engine that has both fields, and tells which values reached it
TOY = {
    "suite/backends/toy.py": """
from suite.backends.base import BackendDriver
from suite.spec.layout import Layout
from suite_example_backend.driver import Example


class Toy(Example):
    name = "toy"
    summary = "a toy engine"
    packages = ("torch",)
    settings = ("fused",)
    extra_work = ("talks",)

    def layout(self, size, workload, request):
        return super().layout(size, workload, request).model_copy(update={"fused": bool(request.fused)})

    worker_argv = BackendDriver.worker_argv
""",
    "suite/worker/engines/toy/__init__.py": "",
    "suite/worker/engines/toy/engine.py": """
from suite_example_backend.engine import BigramEngine


class ToyEngine(BigramEngine):
    def __init__(self, manifest, world):
        super().__init__(manifest, world)
        self.notes = (f"{manifest['workload'].get('talks')} talks, fused: {manifest['layout'].get('fused')}",)
""",
}
RUN = "run --size 1M --device cpu --ranks 1 --repeats 1 --warmup 1 --iterations 2 --force --json --backend"


def suite(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command of a copy, or of this checkout."""
    paths = os.pathsep.join(map(str, (checkout, ROOT / "tests" / "example_backend")))
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}
    command = (sys.executable, "-m", "suite", *arguments)
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which everything was added."""
    folder = tmp_path_factory.mktemp("copy") / "checkout"
    for name in ("suite", "manifests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, before, added in EDITS:
        text = (folder / path).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
        (folder / path).write_text(text.replace(before, added + before), encoding="utf-8")
    for path, text in TOY.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def measured(copy: Path) -> Path:
    """A bundle of the toy engine, with a value of its own for each toy field."""
    done = suite(copy, *RUN.split(), "toy", "--talks", "3", "--fused", "--runs", str(copy / "runs"))
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["measured"]
    return copy / "runs" / run


def record_of(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "record.json").read_text())
    return found


@pytest.mark.ranks
@pytest.mark.ci
def test_a_phase_is_a_line_of_its_declaration_and_the_code_that_does_it(copy: Path, measured: Path) -> None:
    record = record_of(measured)
    events = [json.loads(line) for line in (measured / "events" / "rank-0.jsonl").read_text().splitlines()]
    timed = [event["phase"] for event in events if event["kind"] == "phase"]
    assert timed == ["spread", "generate", "score", "reference", "reward", "train"] * 3
    phase, response_tokens = record["phases"]["spread"], record["counts"]["response_tokens"]
    assert phase["tokens_per_second"] == pytest.approx(response_tokens / phase["seconds"])
    done = suite(copy, "report", str(measured), "-o", str(copy / "report.md"), "--with-suspect")
    assert done.returncode == 0, done.stderr
    report = (copy / "report.md").read_text()
    heading = next(line for line in report.splitlines() if line.startswith("|") and "spread" in line)
    assert heading.index("spread") < heading.index("generate"), "phases stand in the order of an iteration"
    assert "toy spread" in (copy / "report-assets" / "phases.svg").read_text()
    assert suite(copy, "verify", str(measured), str(next(OLD_RUNS.glob("*/")))).returncode == 0, "old runs stay equal"


@pytest.mark.ranks
def test_fields_and_an_engine_are_their_lines_and_reach_its_folder_in_the_worker(copy: Path, measured: Path) -> None:
    assert "3 talks, fused: True" in record_of(measured)["environment"]["worker"]["notes"]
    manifest = json.loads((measured / "manifest.json").read_text())
    assert (manifest["workload"]["talks"], manifest["layout"]["fused"]) == (3, True)
    assert "fused" in record_of(measured)["run"]["layout"]
    assert suite(copy, "verify", str(measured)).returncode == 0


@pytest.mark.slow
def test_a_manifest_without_the_fields_keeps_its_hash(copy: Path) -> None:
    planned = [json.loads(suite(root, *RUN.split(), "deepspeed", "--dry-run").stdout)["runs"] for root in (ROOT, copy)]
    assert planned[0][0]["run"] == planned[1][0]["run"]
