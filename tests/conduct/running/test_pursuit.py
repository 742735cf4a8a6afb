"""Rows get runs until their intervals are as narrow as asked; what is decided follows from the runs that are there."""

import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.turns import Turning
from suite.conduct.running.pursuit import FAILED_IN_A_ROW, Pursuit, follow, lines
from suite.conduct.running.session import Summary
from suite.launch.job import Job
from suite.launch.outcome import Failure, Outcome
from suite.spec.manifest import Manifest, Run, Stopping
from suite.spec.resolve import as_repeat
from tests.conduct.requests import STACKS, make_plan, request
from tests.conduct.sessions import Instantly, Remembering, work

LEAST = 3


def rule(**fields: Any) -> Stopping:
    return Stopping(**{"least": LEAST, "most": 8, "iterations": "fixed", **fields})


def plan_of(asked: Stopping, **changes: Any) -> Plan:
    return make_plan(request(**{"ranks": (1,), "repeats": asked.least, "stopping": asked, **changes}), STACKS)


def noisy(deepspeed: float, megatron: float | None = None, slower: float = 1.0) -> Instantly:
    """Runs of each backend differ by a log-normal factor of this spread; megatron's are so much slower."""
    spread = {"deepspeed": deepspeed, "megatron": deepspeed if megatron is None else megatron}

    def seconds(manifest: Manifest) -> float:
        name = manifest.backend.name
        factor = random.Random(f"0-{manifest.run.id}").lognormvariate(0, spread[name])
        return 0.01 * factor * (slower if name == "megatron" else 1.0)

    return Instantly(seconds)


class MegatronFails(Instantly):
    def run(self, job: Job, folder: Path, on_event: object) -> Outcome:
        if job.name.startswith("deepspeed"):
            return super().run(job, folder, on_event)
        return Outcome(status="failed", exit_codes={0: 1}, elapsed_seconds=1.0, failure=Failure(kind="oom_device"))


def pursue(
    asked: Stopping, root: Path, launcher: Any, plan: Plan | None = None, **how: Any
) -> tuple[Plan, Summary, Any, Remembering]:
    """The third is the JSON that the command prints, with attributes."""
    plan, seen = plan or plan_of(asked), Remembering()
    pursuit = Pursuit(plan.firsts, asked, root, seen, plan.seats)
    run = lambda plan, further: work(plan, root, launcher, seen, further=further, **how)[0]  # noqa: E731
    plan, summary, found = follow(pursuit, plan, run)
    seen.lines = [*lines(found, asked)]
    return plan, summary, json.loads(json.dumps(found), object_hook=lambda fields: SimpleNamespace(**fields)), seen


def test_rows_take_turns_until_each_interval_is_as_narrow_as_asked(tmp_path):
    asked = rule(precision=0.05, most=30)
    plan, summary, found, seen = pursue(asked, tmp_path, noisy(0.04, megatron=0.0))
    wide, calm = found.rows
    assert {row.state for row in found.rows} == {"reached"} and not summary.failed
    assert calm.attempts < wide.attempts and wide.half_width <= 0.05
    assert seen.ended[:6] == [
        f"{plan.firsts[index].run.id[:-1]}{repeat}"
        for repeat, order in ((1, (0, 1)), (2, (1, 0)), (3, (0, 1)))
        for index in order
    ], "A B, B A, A B"
    assert seen.estimate == len(seen.ended) == found.runs == sum(row.attempts for row in found.rows)
    manifest = json.loads((tmp_path / plan.firsts[0].run.id / "manifest.json").read_text())
    assert manifest["run"]["stopping"] == asked.model_dump() and "iterations" not in manifest["run"]
    _, again, same, seen = pursue(asked, tmp_path, noisy(0.04, megatron=0.0))
    assert not seen.ended and len(again.done_before) == found.runs and same == found, "nothing is left to do"


def test_a_plan_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path):
    asked = rule(precision=0.06, most=30)
    _, _, whole, _ = pursue(asked, tmp_path / "whole", noisy(0.04))
    ticks = iter(range(0, 10_000, 5))
    _, summary, cut, _ = pursue(asked, tmp_path / "cut", noisy(0.04), clock=ticks, budget_seconds=60)
    assert summary.left_by_budget and "budget spent" in {row.state for row in cut.rows}
    assert 0 < cut.runs < whole.runs
    _, summary, found, _ = pursue(asked, tmp_path / "cut", noisy(0.04))
    assert len(summary.done_before) == cut.runs
    one, other = ([(row.attempts, row.half_width) for row in each.rows] for each in (found, whole))
    assert one == other


def test_a_row_that_cannot_get_there_is_told_after_its_least_runs_with_what_it_would_take(tmp_path):
    _, _, found, seen = pursue(rule(precision=0.01), tmp_path, noisy(0.3, megatron=0.0))
    hopeless, calm = found.rows
    assert (hopeless.state, hopeless.attempts, calm.state) == ("out of reach", LEAST, "reached")
    assert hopeless.more_runs > 100 and hopeless.more_seconds > 0
    assert any("out of reach; about" in line and "would do" in line for line in seen.notices)


def test_a_row_whose_runs_fail_is_given_up_and_the_others_go_on(tmp_path):
    launcher = MegatronFails(lambda manifest: 0.01 + manifest.run.repeat * 1e-6)
    _, summary, found, seen = pursue(rule(precision=0.05), tmp_path, launcher)
    good, bad = found.rows
    assert (good.state, bad.state, bad.attempts, bad.runs) == ("reached", "given up", FAILED_IN_A_ROW, 0)
    assert len(summary.failed) == FAILED_IN_A_ROW and any("2 runs in a row failed" in line for line in seen.notices)


def test_two_rows_are_told_apart_or_equivalent_as_soon_as_it_is_sure(tmp_path):
    _, _, found, seen = pursue(rule(difference=0.01, most=30), tmp_path / "apart", noisy(0.003, slower=2.0))
    fast, slow = found.rows
    assert [row.attempts for row in found.rows] == [LEAST, LEAST], "a width of 1 % would take many more"
    assert fast.against is None and slow.against.verdict == "slower" and slow.against.row == fast.name
    assert any("slower than deepspeed" in line for line in seen.lines)
    _, _, found, seen = pursue(rule(difference=0.05, most=30), tmp_path / "equal", noisy(0.002))
    verdicts = [row.against.equivalent for row in found.rows if row.against]
    assert verdicts == [True] and any("equivalent within 5.0 % to" in line for line in seen.lines)


def test_later_runs_have_chosen_iterations(tmp_path, script):
    script(noise=0.2, setup_seconds=0.1)
    asked = rule(precision=0.05, most=4, iterations="chosen")
    plan, _, found, _ = pursue(asked, tmp_path, None, plan_of(asked, backends=("deepspeed",)))
    assert [row.iterations for row in found.rows] == [[3, 12]], "start-up takes far longer than an iteration: the most"
    added = plan.manifests[-1]
    assert (added.measure.iterations, added.run.iterations, added.iterations) == (3, 12, 12)
    assert added.hash in {first.hash for first in plan.firsts}, "no other row"
    bundle = Bundle(tmp_path / added.run.id)
    record = bundle.record()
    assert len(record.iterations.seconds) == 13 and verify(bundle).status == "equal"
    assert bundle.manifest() == added


def test_a_manifest_without_a_rule_is_written_as_before():
    assert Run(id="a-r1", plan="p", repeat=1).model_dump() == {"id": "a-r1", "plan": "p", "repeat": 1}
    fixed, ruled = make_plan(request(ranks=(1,)), STACKS), plan_of(rule(precision=0.05))
    assert [one.hash for one in fixed.firsts] == [one.hash for one in ruled.firsts], "its runs are of the same row"


@pytest.mark.parametrize("counts", [False, True])
def test_suspect_runs_count_where_asked_for(tmp_path, monkeypatch, counts):
    monkeypatch.setattr("suite.conduct.running.pursuit.is_suspect", lambda record: True)
    _, _, found, _ = pursue(rule(precision=0.1, with_suspect=counts), tmp_path, noisy(0.01))
    assert {row.state for row in found.rows} == ({"reached"} if counts else {"given up"})
    assert counts or all("--with-suspect counts them" in row.reason for row in found.rows)


def in_turns(asked: Stopping) -> Plan:
    body = request(repeats=asked.least, stopping=asked)
    return make_joint_plan((body,), STACKS, turning=Turning())


def runs_of(plan: Plan, backend: str, ranks: int) -> list[int]:
    made = [m for m in plan.manifests if (m.backend.name, m.layout.ranks) == (backend, ranks)]
    return [manifest.run.repeat for manifest in made]


def test_rows_in_turns_go_on_with_those_that_they_are_compared_with_and_with_no_others(tmp_path):
    asked = rule(difference=0.05, most=12)

    def seconds(manifest: Manifest) -> float:
        alone, slow = manifest.layout.ranks == 1, manifest.backend.name == "megatron"
        noise = random.Random(manifest.run.id).lognormvariate(0, 0.001 if alone else 0.05)
        return 0.01 * noise * (2.0 if alone and slow else 1.0)

    first = in_turns(asked)
    plan, _, _, _ = pursue(asked, tmp_path, Instantly(seconds), first)
    assert runs_of(plan, "deepspeed", 1) == runs_of(plan, "megatron", 1) == [1, 2, 3]
    both = runs_of(plan, "deepspeed", 2)
    assert both == runs_of(plan, "megatron", 2) and len(both) > 3
    lost = next(m for m in plan.manifests if m.backend.name == "megatron" and m.layout.ranks == 1)
    for repeat in (1, 2, 3):
        shutil.rmtree(tmp_path / as_repeat(lost, repeat).run.id)
    plan, _, _, _ = pursue(asked, tmp_path, Instantly(seconds), first)
    assert runs_of(plan, "megatron", 1) == [4, 5, 6], "started together with new runs of the other"
    assert runs_of(plan, "deepspeed", 1) == [1, 2, 3, 4, 5, 6]


def test_where_the_budget_is_short_pairs_without_a_verdict_come_first(tmp_path):
    asked = rule(precision=0.01, difference=0.05, most=30)

    def seconds(manifest: Manifest) -> float:
        known = manifest.layout.ranks == 1 and manifest.backend.name == "megatron"
        return 0.01 * random.Random(manifest.run.id).lognormvariate(0, 0.05) * (2.0 if known else 1.0)

    ticks = iter(range(0, 10_000, 5))
    plan, _, _, seen = pursue(asked, tmp_path, Instantly(seconds), in_turns(asked), clock=ticks, budget_seconds=200)
    assert runs_of(plan, "megatron", 1) == [1, 2, 3], "2 times slower, known to 5 % alone"
    assert len(runs_of(plan, "megatron", 2)) > 3
    assert any("those without a verdict first" in line for line in seen.notices)
