"""`suite compare --gate`: whether both sides are what they should be, its outcomes, and what it judges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_compare import add_runs, compare
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

A, B = "0123456789abcdef", "fedcba9876543210"


def sides(tmp_path: Path, seconds: float = 1.0, runs: int = 4, **asked: Any) -> tuple[Path, Path]:
    """The second side takes so long an iteration, the first one second."""
    before = add_runs(tmp_path / "before", runs, 1.0, **{**asked, "code": A})
    return before, add_runs(tmp_path / "after", runs, seconds, **{"code": B, **asked})


def last(text: str) -> str:
    return text.splitlines()[-1]


def test_two_stacks_of_one_version_are_told_apart_in_the_first_line(tmp_path: Path) -> None:
    code, out, _ = compare(*sides(tmp_path), "--gate", "0.95")
    assert code == 0 and last(out) == "met: every row keeps to the gate of 0.95"
    assert out.splitlines()[0] == "across versions: deepspeed code 1.0 01234567 -> 1.0 fedcba98"
    assert "environment: equal" not in out and "whether both sides" not in out


def test_a_gate_over_the_same_stack_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    both = sides(tmp_path, code=A)
    code, out, err = compare(*both, "--gate", "0.95")
    assert (code, out) == (2, "") and "both sides ran the same stack" in err and "--same-stack" in err
    assert compare(*both)[0] == 0
    assert compare(*both, "--gate", "0.95", "--same-stack")[0] == 0


@pytest.mark.parametrize("told", [A, None], ids=["one side", "neither"])
def test_of_bundles_that_do_not_tell_their_code_it_is_said_that_it_is_not_known(
    tmp_path: Path, told: str | None
) -> None:
    before = add_runs(tmp_path / "before", 4, 1.0, code=told)
    code, out, _ = compare(before, add_runs(tmp_path / "after", 4, 1.0), "--gate", "0.95")
    assert code == 0 and "whether both sides ran the same code is not known" in out


def test_figures_of_unlike_machines_would_decide_but_are_doubtful(tmp_path: Path) -> None:
    before = add_runs(tmp_path / "before", 4, 1.0)
    for repeat in range(1, 5):
        made = synthetic_manifest(repeat=repeat)
        other = {**facts_of(made), "cpu": {"model": "Another CPU", "cores": 2, "threads": 2}}
        make_bundle(tmp_path / "after", made, seconds=[1.2 + (repeat + step) / 1e3 for step in range(10)], facts=other)
    code, out, _ = compare(before, tmp_path / "after", "--gate", "0.95")
    assert code == 4 and last(out) == "doubtful: what would be said of the gate of 0.95 rests on unlike machines"
    assert compare(before, tmp_path / "after", "--gate", "0.95", "--same-stack")[0] == 3


def test_one_run_a_side_at_half_the_rate_meets_no_gate(tmp_path: Path) -> None:
    for more in ((), ("--allow-missing",)):
        code, out, _ = compare(*sides(tmp_path / f"{len(more)}", 2.0, runs=1), "--gate", "0.95", *more)
        assert code == 4 and last(out).startswith("undecided: ") and "0.500" in out


def test_a_gate_on_a_phase_judges_that_phase_alone(tmp_path: Path) -> None:
    both = sides(tmp_path, 1.2)
    code, out, _ = compare(*both, "--gate", "0.95", "--gate-phase", "train")
    assert code == 3 and last(out) == "slower: 1 of 1 row is below the gate of 0.95 on train"
    told = json.loads(compare(*both, "--gate", "0.95", "--gate-phase", "train", "--json")[1])
    train = next(one for one in told["rows"][0]["phases"] if one["name"] == "train")
    assert told["gate"]["phase"] == "train" and told["rows"][0]["gate"]["at_most"] >= train["ratio"]
    code, _, err = compare(*both, "--gate", "0.95", "--gate-phase", "training")
    assert code == 2 and "--gate-phase is one of " in err


@pytest.mark.parametrize("seconds", [0.95, 0.999, 1.03])
def test_how_many_runs_would_decide_comes_from_the_noise_and_the_gate_alone(tmp_path: Path, seconds: float) -> None:
    both = [tmp_path / name for name in ("before", "after")]
    for root, mean, code in zip(both, (1.0, seconds), (A, B), strict=True):
        for repeat, noise in enumerate((-0.1, 0.0, 0.1), 1):
            lasted = [mean * (1 + noise + step / 1e4) for step in range(10)]
            make_bundle(root, synthetic_manifest(repeat=repeat, code=code), seconds=lasted)
    out = compare(*both, "--gate", "0.95", "--strict")[1]
    assert re.findall(r"fails with --strict; (\d+) runs a side", out) == ["48"]
