"""docs/architecture.md, "to add X, touch Y": a toy phase and toy fields, added to a copy of the suite as it says.

Each test edits only the files that the table names and then uses the copy through its public seams.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OLD_RUNS = ROOT / "docs" / "results" / "cpu" / "runs"


class Copy:
    """A copy of the suite that can be edited and used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("suite", "manifests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def edit(self, path: str, before: str, after: str) -> None:
        text = (self.folder / path).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
        (self.folder / path).write_text(text.replace(before, after), encoding="utf-8")

    def run(self, *arguments: str) -> str:
        """Standard output of Python in the copy; the tests' own modules are importable too."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "checkout")


TOY_PHASE = (
    '{"name": "spread", "label": "toy spread", "colour": "#D55E00", "tokens": ["response_tokens"], "optional": true}'
)
WITH_THE_PHASE = """
import sys
from pathlib import Path
from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.conduct.running.progress import LiveView
from suite.report.reading import read_entries
from suite.report.text.output import write
from suite.worker.phases import check_phase
from tests import synthetic

check_phase("spread")
synthetic.SHARES = {"spread": 0.05, **synthetic.SHARES}
bundle = Bundle(synthetic.make_bundle(Path(sys.argv[1])))
bundle.write_record(derive(bundle))
write(read_entries([Path(sys.argv[1])]).entries, Path(sys.argv[2]), None, [])
"""


def test_a_phase_is_a_line_of_its_declaration_and_the_code_that_does_it(copy: Copy, tmp_path: Path) -> None:
    copy.edit("suite/worker/phases.json", '  "phases": [\n', f'  "phases": [\n    {TOY_PHASE},\n')
    copy.edit(
        "suite/worker/loop.py",
        '        with recorder.phase("generate"):\n',
        '        with recorder.phase("spread"):\n            pass\n        with recorder.phase("generate"):\n',
    )
    runs, report = tmp_path / "runs", tmp_path / "report.md"
    copy.run("-c", WITH_THE_PHASE, str(runs), str(report))
    (path,) = runs.glob("*/record.json")
    phase = json.loads(path.read_text())["phases"]["spread"]
    assert phase["seconds"] == pytest.approx(0.05) and phase["share"] == pytest.approx(0.05)
    assert phase["tokens_per_second"] == pytest.approx(32 / 0.05)
    text = report.read_text()
    heading = next(line for line in text.splitlines() if "spread" in line and line.startswith("|"))
    assert heading.index("spread") < heading.index("generate"), "phases stand in the order of an iteration"
    assert "toy spread" in (tmp_path / "report-assets" / "phases.svg").read_text()
    assert copy.run("-m", "suite", "verify", str(next(OLD_RUNS.iterdir()))).splitlines()[0].endswith("equal")


PLAN = ("-m", "suite", "run", "--backend", "deepspeed", "--size", "1M", "--repeats", "1", "--dry-run", "--json")


def planned(copy: Copy, *options: str) -> tuple[str, dict]:
    """Run id and manifest of the one run that is planned."""
    script = (
        "import sys, json; import suite.conduct.planning.machine as machine; "
        "machine.stack_versions = lambda python, packages: dict.fromkeys(packages, '0'); "
        "import suite.conduct.running.display as display; rows = display.plan_rows; "
        "display.plan_rows = lambda runs, *found: ["
        "{**row, 'manifest': manifest.model_dump(mode='json', by_alias=True)} "
        "for row, (manifest, _) in zip(rows(runs, *found), runs)]; "
        "from suite.cli.main import main; main()"
    )
    (row,) = json.loads(copy.run("-c", script, *PLAN[2:], *options))["runs"]
    return row["run"], row["manifest"]


def test_a_workload_field_is_its_declaration_and_whoever_honours_it(copy: Copy) -> None:
    usual, _ = planned(copy)
    copy.edit(
        "suite/spec/workload.py",
        "    note: str | None = None\n    source: str | None = None\n\n    @model_validator",
        '    turns: Annotated[int, Declared("--turns", "turns of a sample", written="when set", feature="turns")] = 1\n'
        "    note: str | None = None\n    source: str | None = None\n\n    @model_validator",
    )
    assert planned(copy)[0] == usual, "a manifest without the field keeps its hash"
    refused = subprocess.run(
        [sys.executable, *PLAN, "--turns", "3"],
        cwd=copy.folder,
        env={**os.environ, "PYTHONPATH": str(copy.folder)},
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 2 and "the deepspeed backend has no turns" in refused.stderr
    copy.edit("suite/backends/deepspeed.py", '("lora_rank", "critic",', '("lora_rank", "critic", "turns",')
    run, manifest = planned(copy, "--turns", "3")
    assert run != usual and manifest["workload"]["turns"] == 3
    assert "turns" not in planned(copy)[1]["workload"]


def test_a_layout_field_is_its_declaration_and_the_backends_that_have_it(copy: Copy) -> None:
    usual, _ = planned(copy)
    copy.edit(
        "suite/spec/layout.py",
        "    offload_optimizer: Annotated[",
        "    fused: Annotated[\n"
        '        bool, Declared("--fused", "fuse it", "switch", label="fused", written="when set")\n'
        "    ] = False\n"
        "    offload_optimizer: Annotated[",
    )
    copy.edit("suite/backends/deepspeed.py", '("zero_stage", "recompute",', '("zero_stage", "fused", "recompute",')
    assert planned(copy)[0] == usual, "a manifest without the field keeps its hash"
    run, manifest = planned(copy, "--fused")
    assert run != usual and manifest["layout"]["fused"] is True
    assert "fused" in copy.run("-m", "suite", "run", "--help")


TOY_DRIVER = """
from suite.backends.deepspeed import DeepSpeed


class Toy(DeepSpeed):
    name = "toy"
    summary = "a toy engine"
    packages = ("packaging",)
"""
TOY_LINE = '"toy": {"driver": "suite.backends.toy:Toy", "worker": "suite.worker.engines.toy.engine:ToyEngine"},'


def test_an_engine_is_its_driver_its_folder_in_the_worker_and_a_line(copy: Copy) -> None:
    copy.edit("suite/worker/backends.json", '  "engines": {\n', f'  "engines": {{\n    {TOY_LINE}\n')
    (copy.folder / "suite/backends/toy.py").write_text(TOY_DRIVER)
    engine = copy.folder / "suite/worker/engines/toy"
    engine.mkdir()
    (engine / "__init__.py").write_text("")
    (engine / "engine.py").write_text("class ToyEngine:\n    pass\n")
    listed = {entry["name"]: entry["summary"] for entry in json.loads(copy.run("-m", "suite", "backends", "--json"))}
    assert listed["toy"] == "a toy engine" and "megatron" in listed
    code = "from suite.worker.engines import engine_class; print(engine_class('toy', 'cpu').__name__)"
    assert copy.run("-c", code).strip() == "ToyEngine"
