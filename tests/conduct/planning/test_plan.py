"""A request becomes exactly the runs it asks for, in an order that is fair, with equal work."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.conduct.planning.plan import Plan
from suite.conduct.planning.request import LayoutChoices, Request
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest, Measure
from tests.conduct.requests import STACKS, make_plan, request, shape, workload


def measure(**asked: Any) -> Measure:
    return Measure(device="cpu", precision="fp32", warmup=1, iterations=3, **asked)


def test_the_cross_product_is_complete_and_every_run_is_named_once() -> None:
    plan = make_plan(request(sizes=(shape("a"), shape("b", layers=4))), STACKS)
    rows = Counter((m.backend.name, m.size.name, m.layout.ranks) for m in plan.manifests)
    assert rows == {(b, s, r): 2 for b in ("deepspeed", "megatron") for s in "ab" for r in (1, 2)}
    assert len({manifest.run.id for manifest in plan.manifests}) == 16
    works = {(m.size.name, m.layout.ranks, m.work_hash) for m in plan.manifests}
    assert len(works) == 4, "backends of one row get equal work, and two ranks twice that of one"


def test_one_rank_serves_weak_and_strong_scaling_with_one_run() -> None:
    plan = make_plan(request(scalings=("weak", "strong"), repeats=1, backends=("deepspeed",)), STACKS)
    assert [(m.layout.ranks, m.work.global_rollouts) for m in plan.manifests] == [(1, 4), (2, 8), (2, 4)]


def test_a_layout_that_does_not_divide_is_left_out_with_its_reason() -> None:
    plan = make_plan(request(layout=LayoutChoices(tensor=(2,))), STACKS)
    assert [(entry.backend, entry.ranks) for entry in plan.skipped] == [("megatron", 1)]
    assert "1 ranks do not divide into tensor parallel 2" in plan.skipped[0].reason
    assert plan.notes == ("tensor does not apply to deepspeed and was left out there",)


def test_versions_that_cannot_do_the_work_are_refused_before_anything_runs() -> None:
    stacks = {"trlx-ddp": {"transformers": "5.23.0"}}
    hydra = request(backends=("trlx-ddp",), workload=workload(reference="hydra", trainable_layers=1))
    with pytest.raises(UsageError, match=r"transformers 5\.23\.0 is too new .* or ask for --reference full"):
        make_plan(hydra, stacks)
    assert make_plan(request(backends=("trlx-ddp",)), stacks).manifests


SPLIT = {"layout": LayoutChoices(placement=("split",), generation=("vllm",), generation_ranks=(1,))}
TRACED = measure(profile=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layout": LayoutChoices(tensor=(3,)), "backends": ("megatron",)}, "do not divide into tensor parallel 3"),
        ({"backends": ("deepspede",)}, "did you mean 'deepspeed'"),
        ({"backends": ("deepspeed",), "layout": LayoutChoices(tensor=(2,))}, "--tp means nothing to deepspeed"),
        ({"nodes": 2, "ranks": (3,)}, "3 ranks do not divide over 2 nodes"),
        ({"sizes": (shape(architecture="opt"),)}, "of the opt family"),
        ({"backends": ("trlx-deepspeed",), "measure": TRACED}, "the suite's own iteration, not that of trlx-deepspeed"),
        ({"backends": ("deepspeed",), "ranks": (2,), **SPLIT, "measure": TRACED}, "traces ranks that all do the same"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(changes: dict, words: str) -> None:
    stacks = {**STACKS, "trlx-deepspeed": {**STACKS["deepspeed"], "transformers": "4.57.0"}}
    with pytest.raises(UsageError) as caught:
        make_plan(request(**changes), stacks)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    layers = draw(st.sets(st.sampled_from([2, 4, 6]), min_size=1))
    return request(
        backends=tuple(draw(st.permutations(sorted(STACKS))))[: draw(st.integers(1, 2))],
        sizes=tuple(shape(f"{each} layers", layers=each) for each in sorted(layers)),
        ranks=tuple(sorted(draw(st.sets(st.sampled_from([1, 2, 4]), min_size=1)))),
        scalings=draw(st.sampled_from([("weak",), ("strong",), ("weak", "strong")])),
        repeats=draw(st.integers(1, 7)),
        measure=measure(seed=draw(st.integers(0, 2**31))),
    )


def row_of(manifest: Manifest) -> str:
    """Everything of a run but its place among the repeats."""
    return manifest.model_dump_json(exclude={"run", "hash"})


def rounds_of(plan: Plan, repeats: int) -> list[list[Manifest]]:
    runs, rows = plan.manifests, len(plan.manifests) // repeats
    assert len(runs) == rows * repeats
    return [list(runs[first : first + rows]) for first in range(0, len(runs), rows)]


@settings(max_examples=25)
@given(requests(), st.integers(1, 5))
def test_every_row_has_each_of_its_repeats_once_in_rounds_that_alternate_and_more_repeats_add_rounds(asked, more):
    rounds = rounds_of(make_plan(asked, STACKS), asked.repeats)
    first = [row_of(manifest) for manifest in rounds[0]]
    assert len(set(first)) == len(first) > 0
    for number, runs in enumerate(rounds, start=1):
        assert {manifest.run.repeat for manifest in runs} == {number}
        assert [row_of(manifest) for manifest in runs] == (first if number % 2 else first[::-1])
    wider = asked.model_copy(update={"repeats": asked.repeats + more})
    longer = rounds_of(make_plan(wider, STACKS), wider.repeats)
    for ours, theirs in zip(rounds, longer, strict=False):
        names = [[(m.backend.name, m.work_hash, m.run.repeat) for m in each] for each in (ours, theirs)]
        assert names[0] == names[1]


@settings(max_examples=25)
@given(requests())
def test_the_same_request_is_the_same_plan_and_another_seed_is_another_of_the_same_rows(asked):
    one, again = make_plan(asked, STACKS), make_plan(asked, STACKS)
    assert one == again and len({manifest.run.id for manifest in one.manifests}) == len(one.manifests)
    reseeded = asked.measure.model_copy(update={"seed": asked.measure.seed + 1})
    other = make_plan(asked.model_copy(update={"measure": reseeded}), STACKS)
    assert other.id != one.id and not {m.hash for m in one.manifests} & {m.hash for m in other.manifests}
    names = [(m.backend.name, m.size.name, m.layout.ranks, m.run.repeat) for m in one.manifests]
    assert [(m.backend.name, m.size.name, m.layout.ranks, m.run.repeat) for m in other.manifests] == names
