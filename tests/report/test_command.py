"""What `suite report` leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from suite.cli.app import app
from suite.spec.layout import Layout
from tests.report import entries as made
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

ROOT = Path(__file__).resolve().parents[2]


def report(folder: Path, *arguments: str) -> str:
    """Output of `suite report` in this folder, which must succeed."""
    command = [sys.executable, "-m", "suite", "report", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "samples/s [95 %]" in done.stdout
    return done.stdout


def test_without_output_it_prints_the_table_and_writes_nothing(tmp_path: Path) -> None:
    make_bundle(tmp_path / "runs", synthetic_manifest())
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "add -o report.md to write" in report(empty, "../runs")
    assert list(empty.iterdir()) == []


def test_with_output_it_names_every_file_it_wrote(tmp_path: Path) -> None:
    make_bundle(tmp_path / "runs", synthetic_manifest())
    names = report(tmp_path, "runs", "-o", "out/report.md").split("wrote ")[1].strip().split(", ")
    written = [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(names) == sorted(written)


@pytest.mark.parametrize("output", [[], ["-o", "report.md"]])
def test_a_slow_network_is_told_on_the_terminal(
    tmp_path: Path, output: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layout = Layout(nodes=2, devices_per_node=1, data=2, zero_stage=1)
    manifest = synthetic_manifest(layout=layout, device="cuda", precision="bf16")
    facts = facts_of(manifest, "NVIDIA H100 80GB HBM3")
    make_bundle(tmp_path / "runs", manifest, facts={**facts, "network": made.network({"across_nodes": 1e9})})
    done = CliRunner().invoke(app, ["report", "runs", *output])
    assert done.exit_code == 0, done.output
    assert "R1 (1 run): the network across nodes is slow" in done.stderr


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_json_with_a_file_is_refused_before_anything_is_read(tmp_path: Path, option: str) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path / "nothing"), "--json", option, str(tmp_path / "file")])
    assert done.exit_code == 2
    assert f"leave out {option}" in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
