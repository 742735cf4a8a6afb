"""What `suite report` leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.spec.layout import Layout
from tests.command import suite
from tests.report import entries as made
from tests.synthetic import facts_of, make_bundle, synthetic_manifest


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written() -> list[str]:
    return [path.as_posix() for path in Path(".").rglob("*") if path.is_file() and path.parts[0] != "runs"]


def test_without_output_it_prints_the_table_and_writes_nothing() -> None:
    make_bundle(Path("runs"), synthetic_manifest())
    done = suite("report", "runs")
    assert done.exit_code == 0 and "samples/s [95 %]" in done.stdout
    assert "add -o report.md to write" in done.stdout and written() == []


def test_with_output_it_names_every_file_it_wrote() -> None:
    make_bundle(Path("runs"), synthetic_manifest())
    done = suite("report", "runs", "-o", "out/report.md")
    assert done.exit_code == 0 and "samples/s [95 %]" in done.stdout
    names = done.stdout.split("wrote ")[1].strip().split(", ")
    assert sorted(names) == sorted(written())


@pytest.mark.parametrize("output", [[], ["-o", "report.md"]])
def test_a_slow_network_is_told_on_the_terminal(output: list[str]) -> None:
    layout = Layout(nodes=2, devices_per_node=1, data=2, zero_stage=1)
    manifest = synthetic_manifest(layout=layout, device="cuda", precision="bf16")
    facts = facts_of(manifest, "NVIDIA H100 80GB HBM3")
    make_bundle(Path("runs"), manifest, facts={**facts, "network": made.network({"across_nodes": 1e9})})
    done = suite("report", "runs", *output)
    assert done.exit_code == 0, done.output
    assert "R1 (1 run): the network across nodes is slow" in done.stderr


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_json_with_a_file_is_refused_before_anything_is_read(option: str) -> None:
    done = suite("report", "nothing", "--json", option, "file")
    assert done.exit_code == 2
    assert f"leave out {option}" in done.stderr and len(done.stderr.splitlines()) == 1
    assert written() == []
