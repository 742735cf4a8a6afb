"""Rows of one size take turns by iteration where they can and fit, all at once or in blocks that share a row."""

from collections import defaultdict
from typing import Any

import pytest

from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.request import LayoutChoices
from suite.conduct.planning.turns import ITERATIONS, Turning, start_of
from suite.spec.base import UsageError
from suite.spec.manifest import Measure
from tests.conduct.requests import STACKS, make_plan, request, shape, workload

GIB = 1 << 30
SPLIT = LayoutChoices(placement=("split",), generation_ranks=(1,))


def planned(turning: Turning, **changes: Any) -> Plan:
    return make_joint_plan((request(**changes),), STACKS, turning=turning)


def starts(plan: Plan) -> list[set[str]]:
    """Runs that are started together, as backend, ranks and repeat."""
    found = defaultdict(set)
    for manifest in plan.manifests:
        row = f"{manifest.backend.name} {manifest.layout.ranks} r{manifest.run.repeat}"
        found[start_of(manifest, plan.seats)].add(row)
    found.pop(None, None)
    return sorted(found.values(), key=sorted)


def test_all_of_a_size_take_turns_whatever_their_ranks_and_what_was_assumed_is_told() -> None:
    plan = planned(Turning(room_bytes=16 * GIB), sizes=(shape("a"), shape("b", layers=4)), left_open=("iterations",))
    assert {(m.measure.turns, m.measure.iterations) for m in plan.manifests} == {("iterations", ITERATIONS)}
    assert len(starts(plan)) == 4 and all(len(each) == 4 for each in starts(plan))
    assert "4 rows of a take turns by iteration: at once they should need 6." in plan.notes[0]
    assert not plan.in_rounds


def test_rows_that_do_not_all_fit_take_turns_in_blocks_that_share_the_first() -> None:
    plan = planned(Turning(room_bytes=5 * GIB), repeats=1)
    assert starts(plan) == [
        {"deepspeed 1 r1", "megatron 1 r1"},
        {"deepspeed 1 r2", "deepspeed 2 r1"},
        {"deepspeed 1 r3", "megatron 2 r1"},
    ]
    assert "in 3 blocks that share the first" in plan.notes[0]


@pytest.mark.parametrize(("mixed", "rows"), [(False, 2), (True, 3)])
def test_trainers_take_turns_with_engines_where_they_are_to_be_compared(mixed: bool, rows: int) -> None:
    trl = {"trl": "1.16.0", "accelerate": "1.15.0", "datasets": "5.2.0", "tokenizers": "0.23.3"}
    stacks = {**STACKS, "trl-grpo": {**STACKS["deepspeed"], **trl}}
    work = workload(algorithm="grpo", group=2)
    asked = request(backends=tuple(stacks), ranks=(1,), workload=work, repeats=1)
    plan = make_joint_plan((asked,), stacks, turning=Turning(mixed=mixed))
    assert [len(each) for each in starts(plan)] == [rows]


@pytest.mark.parametrize(
    ("turning", "changes", "words"),
    [
        ({"refused": "the host is far away"}, {}, "the host is far away"),
        ({"room_bytes": 2 * GIB}, {}, "for which there is no room beside the first"),
        ({}, {"sizes": (shape("a"), shape("b")), "ranks": (1,), "backends": ("deepspeed",)}, "b is one row"),
        ({}, {"measure": Measure(device="cpu", precision="fp32", profile=True)}, "--profile"),
        ({}, {"layout": SPLIT, "ranks": (2,)}, "megatron: its two sides work at the same"),
    ],
)
def test_what_cannot_take_turns_is_run_in_rounds_or_refused(turning: dict, changes: dict, words: str) -> None:
    plan = planned(Turning(**turning), **changes)
    assert not plan.seats and {m.measure.turns for m in plan.manifests} == {"rounds"}
    assert any(words in reason for reason in plan.in_rounds)
    with pytest.raises(UsageError, match=r"--turns iterations: .*--turns rounds runs one after the other"):
        planned(Turning(asked="iterations", **turning), **changes)


def test_rounds_and_one_row_alone_keep_their_manifests_and_are_told_nothing() -> None:
    assert planned(Turning(asked="rounds")) == make_plan(request(), STACKS)
    alone = request(backends=("deepspeed",), ranks=(1,))
    assert make_joint_plan((alone,), STACKS, turning=Turning()) == make_plan(alone, STACKS)


def test_environments_of_a_backend_are_rows_that_know_which_was_named_first() -> None:
    both = dict.fromkeys(("deepspeed@old", "deepspeed@new"), STACKS["deepspeed"])
    stacks = {**both, "megatron": STACKS["megatron"]}
    asked = request(backends=tuple(stacks), ranks=(1,), repeats=1)
    plan = make_joint_plan((asked,), stacks, turning=Turning(length=3))
    rows = {m.backend.label: m for m in plan.manifests}
    named = [(rows[name].backend.environment, rows[name].run.base) for name in stacks]
    assert named == [("old", None), ("new", "old"), (None, None)]
    assert rows["deepspeed@new"].run.id.startswith("deepspeed-new-tiny-n1-")
    assert rows["megatron"].run.base is None and len(starts(plan)) == 1
    assert {m.measure.turn_length for m in plan.manifests} == {3}
    assert "environment" not in rows["megatron"].model_dump()["backend"]
