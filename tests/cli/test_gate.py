"""`suite compare --gate`: whether both sides are what they should be, its outcomes, and what it judges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_compare import add_runs, compare
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

A, B = "0123456789abcdef", "fedcba9876543210"


def gated(root: Path, *options: str, seconds: float = 1.0, runs: int = 4, **after: Any) -> tuple[int, str, str]:
    """Exit code, output and last line (or complaint); iterations of the second side last so many ``seconds``."""
    if not root.exists():
        add_runs(root / "before", runs, 1.0, code=A)
        add_runs(root / "after", runs, seconds, **{"code": B, **after})
    code, out, error = compare(root / "before", root / "after", "--gate", "0.95", *options)
    return code, out, (out or error).splitlines()[-1]


def test_two_stacks_of_one_version_are_told_apart_in_the_first_line(tmp_path: Path) -> None:
    code, out, last = gated(tmp_path / "runs")
    assert (code, last) == (0, "met: every row keeps to the gate of 0.95")
    assert out.splitlines()[0] == "across versions: deepspeed code 1.0 01234567 -> 1.0 fedcba98"
    assert "environment: equal" not in out and "whether both sides" not in out


def test_a_gate_over_the_same_stack_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    code, out, last = gated(tmp_path / "runs", code=A)
    assert (code, out) == (2, "") and "both sides ran the same stack" in last and "--same-stack" in last
    assert gated(tmp_path / "runs", "--same-stack")[0] == 0
    code, out, _ = gated(tmp_path / "older", code=None)
    assert code == 0 and "whether both sides ran the same code is not known" in out


def test_figures_of_unlike_machines_would_decide_but_are_doubtful(tmp_path: Path) -> None:
    add_runs(tmp_path / "before", 4, 1.0)
    for repeat in range(1, 5):
        made = synthetic_manifest(repeat=repeat)
        other = {**facts_of(made), "cpu": {"model": "Another CPU", "cores": 2, "threads": 2}}
        make_bundle(tmp_path / "after", made, seconds=[1.2 + (repeat + step) / 1e3 for step in range(10)], facts=other)
    assert gated(tmp_path)[::2] == (4, "doubtful: what would be said of the gate of 0.95 rests on unlike machines")
    assert gated(tmp_path, "--same-stack")[0] == 3


def test_one_run_a_side_at_half_the_rate_meets_no_gate(tmp_path: Path) -> None:
    for more in ((), ("--allow-missing",)):
        code, out, last = gated(tmp_path / "runs", *more, seconds=2.0, runs=1)
        assert code == 4 and last.startswith("undecided: ") and "0.500" in out


def test_a_gate_on_a_phase_judges_that_phase_alone(tmp_path: Path) -> None:
    code, _, last = gated(tmp_path / "runs", "--gate-phase", "train", seconds=1.2)
    assert (code, last) == (3, "slower: 1 of 1 row is below the gate of 0.95 on train")
    code, _, last = gated(tmp_path / "runs", "--gate-phase", "training")
    assert code == 2 and "--gate-phase is one of " in last


@pytest.mark.parametrize("seconds", [0.95, 0.999, 1.03])
def test_how_many_runs_would_decide_comes_from_the_noise_and_the_gate_alone(tmp_path: Path, seconds: float) -> None:
    for name, mean in (("before", 1.0), ("after", seconds)):
        for repeat, noise in enumerate((-0.1, 0.0, 0.1), 1):
            lasted = [mean * (1 + noise + step / 1e4) for step in range(10)]
            make_bundle(tmp_path / name, synthetic_manifest(repeat=repeat), seconds=lasted)
    code, out, _ = gated(tmp_path, "--strict")
    assert code == 4 and re.findall(r"fails with --strict; (\d+) runs a side", out) == ["48"]
    assert re.findall(r"be equal within 5%; (\d+) runs a side", out) == ["74"]
    assert gated(tmp_path)[::2] == (0, "met: no row is shown to be below the gate of 0.95")
