"""A rerun: its runs beside those of before, the verdict, what differs, and going on with one that was interrupted."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from suite.bundle.derive import derive
from suite.bundle.record import Iterations
from suite.bundle.store import Bundle
from suite.conduct.planning.plan import Plan
from suite.conduct.running.display import print_rerun
from suite.conduct.running.reproduction import ratios_again, reproduction, rerun_outcome
from suite.conduct.running.rerun import repeats_of, rerun_plan
from suite.spec.manifest import Manifest
from suite.stats.intervals import RunSeconds
from suite.stats.rounds import InTurns, Turn
from tests.command import suite
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
    assert found.sentence().startswith(verdict), "also where one verdict's words end with another's"


@given(st.integers(0, 6), st.integers(0, 6), st.floats(0.5, 2))
@settings(max_examples=50)
def test_one_run_or_runs_without_spread_show_nothing(before: int, after: int, rate: float) -> None:
    found = reproduction(runs(100)[:before], runs(100 * rate)[:after], 0.05)
    if min(before, after) < 2:
        assert found.verdict == "cannot tell"
        assert (found.more_before or 0) >= 2 - before or (found.more_after or 0) >= 2 - after
        assert found.more_before is None or found.more_before >= 2 - before
    assert reproduction(runs(100, (1, 1, 1)), runs(100, (1, 1, 1)), 0.05).verdict == "cannot tell", "without spread"


def test_so_many_more_runs_as_it_says_settle_it_where_the_spread_stays() -> None:
    found = reproduction(runs(100), runs(98), 0.033)
    assert found.verdict == "cannot tell" and found.more_after and found.more_before == 0
    later = runs(98, NOISE * (1 + math.ceil(found.more_after / len(NOISE))))
    assert reproduction(runs(100), later, 0.033).verdict == "reproduced"


def in_turns(rate: float, starts: int = 3) -> InTurns:
    """Starts of 20 turns, all of one spread around the rate."""
    made, turns = [], []
    for start in range(starts):
        made.append(RunSeconds(4, tuple(4 / rate / NOISE[(start + turn) % 5] for turn in range(20))))
        turns.append(Turn("plan", start, 1.0, f"start {start}", tuple(range(20))))
    return InTurns(tuple(made), tuple(turns))


@pytest.mark.parametrize(
    ("pace", "ratio", "verdict"), [(1.0, 1.0, "reproduced"), (0.5, 1.0, "reproduced"), (1.0, 1.1, "not reproduced")]
)
def test_rows_in_turns_are_judged_by_their_ratio_whatever_the_pace(pace: float, ratio: float, verdict: str) -> None:
    before = [in_turns(100), in_turns(80)]
    (found,) = ratios_again(before, [in_turns(100 * pace * ratio), in_turns(80 * pace)], ["other"], 0.05)
    assert found.verdict == verdict and found.low < ratio < found.high
    assert (found.before, found.now) == (pytest.approx(1.25), pytest.approx(1.25 * ratio))
    assert ratios_again(before, [in_turns(100, 1), in_turns(80, 1)], ["other"], 0.05) == (), "one start tells no spread"


def do(root: Path, manifest: Manifest, seconds: float = 0.01, **changes: Any) -> None:
    lasted = [seconds * NOISE[(manifest.run.repeat + index) % 5] for index in range(10)]
    make_bundle(root, manifest, seconds=lasted, **changes)


def before_runs(root: Path, count: int, **changes: Any) -> Manifest:
    for repeat in range(1, count + 1):
        do(root, synthetic_manifest(repeat=repeat, **changes))
    return synthetic_manifest(**changes)


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


def test_a_repeat_counts_by_its_events_and_not_where_these_are_damaged_or_do_not_fit_together(tmp_path: Path) -> None:
    manifest = before_runs(tmp_path, 4)
    first, second, third, fourth = (Bundle(tmp_path / f"{manifest.run.id[:-1]}{repeat}") for repeat in (1, 2, 3, 4))
    record = derive(first)
    doubled = Iterations(seconds=tuple(2 * seconds for seconds in record.iterations.seconds))
    first.write_record(structs.replace(record, iterations=doubled))
    driver = third.path / "events" / "driver.jsonl"
    driver.write_text(driver.read_text().replace('"time": 17', '"time": 18'))
    (fourth.path / "manifest.json").write_text("{")
    records, told = repeats_of(manifest, first.path)
    assert records == [record, derive(second)] and told[2].startswith(f"{fourth.path}: left out, damaged: ")
    assert "record.json is not what its events give" in told[0] and "left out, run-times: " in told[1]
    plan = Plan(id="", manifests=(first.manifest(),), skipped=(), notes=())
    assert rerun_outcome(records, plan, tmp_path, 0.05).after == (record,)


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
    (tmp_path / first.manifests[1].run.id).rename(tmp_path / "aside")
    for each in first.manifests[1:]:
        do(tmp_path, each)
    second = rerun_plan(manifest, tmp_path, 3)
    assert (second.id, [each.run.repeat for each in second.manifests]) == ("rerun-2-of-3", [6, 7, 8])
    extended = rerun_plan(manifest, tmp_path, 5, extend=True)
    assert extended.manifests[:3] == first.manifests
    assert [each.run.plan for each in extended.manifests[3:]] == ["rerun-1-of-5"] * 2


def test_the_view_of_a_rerun_fits_80_columns(tmp_path, capsys, narrow, snapshot):
    narrow()
    manifest = before_runs(tmp_path, 3)
    records, _ = repeats_of(manifest, tmp_path / manifest.run.id)
    plan = rerun_plan(manifest, tmp_path, 3)
    packages = {"torch": "2.14.0+a-local-build-with-a-long-name", "deepspeed": "1.0"}
    for each in plan.manifests:
        do(tmp_path, each, 0.012, facts={"cpu": {"model": "Another CPU @ 3.10GHz"}, "packages": packages})
    print_rerun(rerun_outcome(records, plan, tmp_path, 0.05), Path("runs"))
    told = capsys.readouterr().out
    assert all(len(line) <= 80 for line in told.splitlines())
    assert told == snapshot


def test_the_command_ends_with_the_verdict(tmp_path: Path, script: Callable[..., None]) -> None:
    def seeded(seed: int, **fields: object) -> None:
        script(**{"seed": seed, "noise": 0.005, "seconds": 0.02, **fields})

    def rerun(folder: str, *more: str) -> Any:
        return suite("rerun", bundle, "--runs", tmp_path / folder, *more)

    measure = ("--size", "1M", "--ranks", "1", "--device", "cpu", "--backend", "deepspeed", "--iterations", "5")
    for seed in (1, 2, 3):
        seeded(seed)
        assert suite("run", *measure, "--repeats", seed, "--runs", tmp_path).exit_code == 0
    bundle = next(path for path in tmp_path.iterdir() if path.name.endswith("-r1"))

    seeded(8)
    same = rerun("same", "--repeats", "2")
    assert (same.exit_code, "verdict: reproduced within 5 %" in same.stdout) == (0, True)
    seeded(9, seconds=0.03)
    slow = rerun("slow", "--repeats", "2", "--margin", "10%")
    assert (slow.exit_code, "verdict: not reproduced within 10 %: 33" in slow.stdout) == (3, True)
    one = rerun("one", "--repeats", "1")
    assert (one.exit_code, "a single run" in one.stdout) == (0, True)
    assert rerun("one", "--repeats", "1", "--strict").exit_code == 3

    seeded(8)
    narrow = rerun("narrow", "--until", "50%")
    assert (narrow.exit_code, "verdict: reproduced within 5 %" in narrow.stdout) == (0, True)
    assert len(list((tmp_path / "narrow").glob("*-r*"))) >= 4
    for wrong, words in (
        (("--until", "5%", "--repeats", "3"), "leave out --repeats"),
        (("--margin", "much"), "--margin is a percentage"),
    ):
        refused = rerun("bad", *wrong)
        assert refused.exit_code == 2 and words in refused.stderr and not (tmp_path / "bad").exists()

    seeded(9, at={"iteration": 2, "do": "raise", "message": "no"})
    failing = rerun("failing", "--repeats", "1", "--json")
    told = json.loads(failing.stdout)
    assert failing.exit_code == 1
    assert (told["verdict"], told["more_after"], told["records"][0]["status"]) == ("cannot tell", 2, "failed")
    assert len(told["compared_with"]) == 3 and derive(Bundle(bundle)).status == "ok"
