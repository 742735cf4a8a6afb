"""A rerun: its runs beside those of before, the verdict, what differs, and going on with one that was interrupted."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.cli.app import app
from suite.conduct.running.display import print_rerun
from suite.conduct.running.reproduction import Reproduction, reproduction, rerun_outcome
from suite.conduct.running.rerun import default_repeats, repeats_of, rerun_plan
from suite.spec.manifest import Manifest
from suite.stats.intervals import RunSeconds
from tests.scripted_suite import WORKER
from tests.synthetic import make_bundle, synthetic_manifest

NOISE = (0.99, 1.0, 1.012, 0.995, 1.006)


def runs(rate: float, noise: Sequence[float] = NOISE) -> list[RunSeconds]:
    return [RunSeconds(4, tuple(4 / rate / factor for _ in range(8))) for factor in noise]


@pytest.mark.parametrize(
    ("rate", "margin", "verdict"),
    [
        (1.0, 0.05, "reproduced"),
        (0.99, 0.05, "reproduced"),
        (1.0, 0.005, "cannot tell"),
        (0.95, 0.05, "cannot tell"),
        (0.8, 0.05, "not reproduced"),
        (1.25, 0.05, "not reproduced"),
    ],
)
def test_a_verdict_is_where_the_whole_interval_lies(rate: float, margin: float, verdict: str) -> None:
    found = reproduction(runs(100), runs(100 * rate), margin)
    assert found.verdict == verdict
    assert found.low is not None and found.high is not None and found.low < rate < found.high
    assert (verdict in found.sentence()) or (verdict == "cannot tell" and "cannot tell" in found.sentence())


@given(st.integers(0, 6), st.integers(0, 6), st.floats(0.5, 2))
@settings(deadline=None)
def test_one_run_on_either_side_never_shows_anything(before: int, after: int, rate: float) -> None:
    found = reproduction(runs(100)[:before], runs(100 * rate)[:after], 0.05)
    if min(before, after) < 2:
        assert found.verdict == "cannot tell"
        assert (found.more_before or 0) >= 2 - before or (found.more_after or 0) >= 2 - after
        assert found.more_before is None or found.more_before >= 2 - before


def test_runs_without_spread_are_no_proof() -> None:
    equal = reproduction(runs(100, (1, 1, 1)), runs(100, (1, 1, 1)), 0.05)
    assert equal.verdict == "cannot tell"


def test_so_many_more_runs_as_it_says_settle_it_where_the_spread_stays() -> None:
    found = reproduction(runs(100), runs(98), 0.033)
    assert found.verdict == "cannot tell" and found.more_after and found.more_before == 0
    later = runs(98, NOISE * (1 + math.ceil(found.more_after / len(NOISE))))
    assert reproduction(runs(100), later, 0.033).verdict == "reproduced"


def test_where_more_runs_now_do_not_help_both_sides_are_asked_for() -> None:
    noisy = (0.9, 1.1)
    found = reproduction(runs(100, noisy), runs(100), 0.05)
    assert found.more_before and found.more_after
    assert "of before" in found.sentence()


def before_runs(root: Path, count: int, **changes: Any) -> Manifest:
    for repeat in range(1, count + 1):
        manifest = synthetic_manifest(repeat=repeat, **changes)
        make_bundle(root, manifest, seconds=[0.01 * NOISE[(repeat + index) % 5] for index in range(10)])
    return synthetic_manifest(**changes)


def do(root: Path, manifest: Manifest) -> None:
    make_bundle(root, manifest, seconds=[0.01 * NOISE[(manifest.run.repeat + index) % 5] for index in range(10)])


def test_all_repeats_beside_a_bundle_are_what_a_rerun_is_compared_with(tmp_path: Path) -> None:
    manifest = before_runs(tmp_path, 3)
    before_runs(tmp_path, 2, iterations=9)
    for place in (tmp_path / manifest.run.id, tmp_path / manifest.run.id / "manifest.json"):
        records, unread = repeats_of(manifest, place)
        assert [record.run.repeat for record in records] == [1, 2, 3] and not unread
    again = rerun_plan(manifest, tmp_path, 2)
    do(tmp_path, again.manifests[0])
    assert len(repeats_of(manifest, tmp_path / manifest.run.id)[0]) == 3, "runs of a rerun are not of before"
    own = repeats_of(again.manifests[0], tmp_path / again.manifests[0].run.id)[0]
    assert [record.run.repeat for record in own] == [4]


def test_a_damaged_repeat_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    manifest = before_runs(tmp_path, 3)
    other = tmp_path / f"{manifest.run.id[:-1]}2"
    (other / "manifest.json").write_text("{")
    records, (line,) = repeats_of(manifest, tmp_path / manifest.run.id)
    assert [record.run.repeat for record in records] == [1, 3] and str(other) in line


def test_an_interrupted_rerun_is_gone_on_with_and_a_finished_one_is_not(tmp_path: Path) -> None:
    manifest = before_runs(tmp_path, 2)
    first = rerun_plan(manifest, tmp_path, 3)
    assert [each.run.repeat for each in first.manifests] == [3, 4, 5]
    assert {each.run.plan for each in first.manifests} == {"rerun-1-of-3"}
    assert {each.hash for each in first.manifests} == {manifest.hash}
    do(tmp_path, first.manifests[0])
    assert rerun_plan(manifest, tmp_path, 3).manifests == first.manifests
    make_bundle(tmp_path, first.manifests[1], status="interrupted", completed=3)
    assert rerun_plan(manifest, tmp_path, 3).manifests == first.manifests
    assert rerun_plan(manifest, tmp_path, 4).id == "rerun-2-of-4", "asked for another number it is another rerun"
    again = Bundle(tmp_path / first.manifests[1].run.id)
    again.path.rename(tmp_path / "aside")
    for each in first.manifests[1:]:
        do(tmp_path, each)
    second = rerun_plan(manifest, tmp_path, 3)
    assert (second.id, [each.run.repeat for each in second.manifests]) == ("rerun-2-of-3", [6, 7, 8])
    extended = rerun_plan(manifest, tmp_path, 5, extend=True)
    assert extended.manifests[:3] == first.manifests
    assert [each.run.plan for each in extended.manifests[3:]] == ["rerun-1-of-5"] * 2


def test_as_many_runs_as_there_are_to_compare_with(tmp_path: Path) -> None:
    manifest = before_runs(tmp_path, 5)
    records, _ = repeats_of(manifest, tmp_path / manifest.run.id)
    assert [default_repeats(records[:count]) for count in (0, 1, 3, 5)] == [3, 3, 3, 5]
    assert default_repeats(records * 9) == 10


def test_the_view_of_a_rerun_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    manifest = before_runs(tmp_path, 3)
    records, _ = repeats_of(manifest, tmp_path / manifest.run.id)
    plan = rerun_plan(manifest, tmp_path, 3)
    packages = {"torch": "2.14.0+a-local-build-with-a-long-name", "deepspeed": "1.0"}
    for index, each in enumerate(plan.manifests):
        seconds = [0.012 * NOISE[(index + number) % 5] for number in range(10)]
        make_bundle(
            tmp_path, each, seconds=seconds, facts={"cpu": {"model": "Another CPU @ 3.10GHz"}, "packages": packages}
        )
    print_rerun(rerun_outcome(records, plan, tmp_path, 0.05), Path("runs"))
    told = capsys.readouterr().out
    assert all(len(line) <= 80 for line in told.splitlines())
    assert told == snapshot


@pytest.fixture
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything behind a worker as it is, in this process."""
    monkeypatch.setattr("suite.backends.deepspeed.own_worker_argv", lambda m, b: (str(WORKER), m, "--bundle", b))
    monkeypatch.setattr(
        "suite.conduct.planning.machine.stack_versions", lambda python, packages: dict.fromkeys(packages, "0-scripted")
    )


def suite(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        app([str(each) for each in arguments], prog_name="suite")
    code = ended.value.code
    assert isinstance(code, int)
    return code


def script(monkeypatch: pytest.MonkeyPatch, seed: int, **fields: object) -> None:
    monkeypatch.setenv("SUITE_SCRIPT", json.dumps({"seed": seed, "noise": 0.005, **fields}))


@pytest.mark.usefixtures("_scripted")
def test_the_command_ends_with_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = ("--size", "1M", "--ranks", "1", "--device", "cpu", "--backend", "deepspeed", "--iterations", "5")
    for seed in (1, 2, 3):
        script(monkeypatch, seed, seconds=0.02)
        assert suite("run", *measure, "--repeats", seed, "--runs", tmp_path) == 0
    bundle = next(path for path in tmp_path.iterdir() if path.name.endswith("-r1"))
    capsys.readouterr()

    script(monkeypatch, 8, seconds=0.02)
    assert suite("rerun", bundle, "--runs", tmp_path / "same", "--repeats", "2") == 0
    assert "verdict: reproduced within 5 %" in capsys.readouterr().out
    script(monkeypatch, 9, seconds=0.03)
    assert suite("rerun", bundle, "--runs", tmp_path / "slow", "--repeats", "2", "--margin", "10%") == 3
    assert "verdict: not reproduced within 10 %: 33" in capsys.readouterr().out
    assert suite("rerun", bundle, "--runs", tmp_path / "one", "--repeats", "1") == 0
    assert "a single run" in capsys.readouterr().out
    assert suite("rerun", bundle, "--runs", tmp_path / "strict", "--repeats", "1", "--strict") == 3
    capsys.readouterr()

    script(monkeypatch, 8, seconds=0.02)
    assert suite("rerun", bundle, "--runs", tmp_path / "narrow", "--precision", "50%") == 0
    assert "verdict: reproduced within 5 %" in capsys.readouterr().out
    assert len(list((tmp_path / "narrow").glob("*-r*"))) >= 4
    assert suite("rerun", bundle, "--runs", tmp_path / "bad", "--precision", "5%", "--repeats", "3") == 2
    assert "leave out --repeats" in capsys.readouterr().err

    assert suite("rerun", bundle, "--runs", tmp_path / "bad", "--margin", "much") == 2
    assert "--margin is a percentage" in capsys.readouterr().err and not (tmp_path / "bad").exists()

    script(monkeypatch, 9, at={"iteration": 2, "do": "raise", "message": "no"})
    assert suite("rerun", bundle, "--runs", tmp_path / "failing", "--repeats", "1", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["more_after"], told["records"][0]["status"]) == ("cannot tell", 2, "failed")
    assert len(told["compared_with"]) == 3 and derive(Bundle(bundle)).status == "ok"


def test_a_verdict_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="verdict"):
        Reproduction.model_validate({"verdict": "maybe"})
