"""`suite compare` from the command line: sides, gates, exit codes, JSON, and evidence that was changed."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.bundle.tampering import derive_again
from tests.command import suite
from tests.synthetic import facts_of, make_bundle, synthetic_manifest


def add_runs(root: Path, runs: int, seconds: float, first: int = 1, spread: float = 0.004, **asked: Any) -> Path:
    """Bundles whose iterations last so long, each run a little otherwise."""
    noise = random.Random(f"{root.name} {first} {sorted(asked)}")
    for repeat in range(first, first + runs):
        mean = seconds * (1 + spread * noise.gauss(0, 1))
        lasted = [mean * (1 + spread * noise.gauss(0, 1)) for _ in range(10)]
        path = make_bundle(root, synthetic_manifest(repeat=repeat, **asked), seconds=lasted)
        derive_again(path)
    return root


def compare(*arguments: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a comparison."""
    done = suite("compare", *arguments)
    return done.exit_code, done.stdout, done.stderr


def test_the_json_holds_everything(tmp_path: Path) -> None:
    before, after = add_runs(tmp_path / "before", 4, 1.0), add_runs(tmp_path / "after", 4, 1.2)
    code, out, _ = compare(before, after, "--gate", "0.95", "--json")
    told = json.loads(out)
    (row,) = told["rows"]
    assert code == 3 and told["gate"]["passed"] is False and (told["missed"], told["undecided"]) == (1, 0)
    assert row["low"] < row["ratio"] < row["high"] and row["ratio"] == pytest.approx(1 / 1.2, abs=0.01)
    assert row["gate"]["outcome"] == "below" and row["gate"]["at_most"] < 0.95
    assert {phase["name"] for phase in row["phases"]} >= {"generate", "score", "reference", "reward", "train", "other"}
    assert sum(phase["share_of_change"] for phase in row["phases"]) == pytest.approx(1)
    assert row["memory"]["verdict"] == "not distinguishable"
    assert told["surroundings"]["label"] == "like with like" and told["unjudged"] == []
    assert json.loads(compare(before, after, "--json")[1])["gate"] is None


def test_two_environments_of_one_folder_are_two_sides_in_the_order_of_their_names(tmp_path: Path) -> None:
    root = add_runs(tmp_path / "runs", 4, 1.0, environment="zero", code="a" * 16)
    code, _, err = compare(root, "--gate", "0.97")
    assert code == 2 and "this has runs of environments zero" in err
    add_runs(root, 4, 1.2, environment="patch", base="zero", code="b" * 16)
    code, out, _ = compare(root, "--gate", "0.97", "--json")
    told = json.loads(out)
    assert code == 3 and told["rows"][0]["ratio"] == pytest.approx(1 / 1.2, abs=0.01)
    assert told["surroundings"]["label"] == "across versions", "what an environment is called is no setting"
    add_runs(root, 2, 1.0)
    assert compare(root)[0] == 2


def test_a_gate_fails_on_what_vanished_unless_it_may_be_missing(tmp_path: Path) -> None:
    before = add_runs(tmp_path / "before", 3, 1.0)
    add_runs(before, 3, 1.0, backend="megatron")
    after = add_runs(tmp_path / "after", 3, 1.0)
    code, out, _ = compare(before, after, "--gate", "0.9")
    assert code == 4 and "no partner (1):" in out and "1 row or bundle cannot be judged" in out
    code, out, _ = compare(before, after, "--gate", "0.9", "--allow-missing")
    assert code == 0 and "allowed by --allow-missing" in out


def test_a_gate_fails_on_damaged_and_changed_bundles(tmp_path: Path) -> None:
    before, after = add_runs(tmp_path / "before", 3, 1.0), add_runs(tmp_path / "after", 4, 1.0)
    first, second, *_ = sorted(path for path in after.iterdir() if path.is_dir())
    (first / "manifest.json").write_text("{")
    record = second / "record.json"
    record.write_text(record.read_text().replace('"status": "ok"', '"status": "failed"'))
    code, out, _ = compare(before, after, "--gate", "0.9")
    assert code == 4 and "damaged (1):" in out
    assert "altered (1):" in out
    told = json.loads(compare(before, after, "--gate", "0.9", "--json")[1])
    assert {(one["side"], one["lack"]) for one in told["unjudged"]} == {("after", "altered"), ("after", "damaged")}
    assert compare(before, after, "--gate", "0.9", "--allow-missing")[0] == 0


def test_a_row_in_two_ways_is_told_apart_by_naming_bundles(tmp_path: Path) -> None:
    short, long = add_runs(tmp_path / "short", 3, 1.0), add_runs(tmp_path / "long", 3, 1.0, iterations=20)
    after = add_runs(tmp_path / "after", 3, 1.0, iterations=12)
    code, out, _ = compare("--before", short, "--before", long, "--after", after, "--gate", "0.9")
    assert code == 4 and "ambiguous (1):" in out and "iterations=20" in out
    named = [word for path in short.iterdir() for word in ("--before", path)]
    code, out, _ = compare(*named, "--after", after, "--gate", "0.9")
    assert code == 0 and "1 row compared" in out and "across settings: iterations 8 -> 12" in out


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
