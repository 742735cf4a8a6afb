"""What holds of the rounds of every plan: each row gets all of its repeats, taking turns, and always the same ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.planning.request import Request
from suite.spec.manifest import Manifest, Measure
from tests.conduct.requests import STACKS, request, shape


@st.composite
def requests(draw: st.DrawFn) -> Request:
    layers = draw(st.sets(st.sampled_from([2, 4, 6]), min_size=1))
    return request(
        backends=tuple(draw(st.permutations(sorted(STACKS))))[: draw(st.integers(1, 2))],
        sizes=tuple(shape(f"{each} layers", layers=each) for each in sorted(layers)),
        ranks=tuple(sorted(draw(st.sets(st.sampled_from([1, 2, 4]), min_size=1)))),
        scalings=draw(st.sampled_from([("weak",), ("strong",), ("weak", "strong")])),
        repeats=draw(st.integers(1, 7)),
        measure=Measure(device="cpu", precision="fp32", warmup=1, iterations=3, seed=draw(st.integers(0, 2**31))),
    )


def row_of(manifest: Manifest) -> str:
    """Everything of a run but its place among the repeats."""
    return manifest.model_dump_json(exclude={"run", "hash"})


def rounds_of(plan: Plan, repeats: int) -> list[list[Manifest]]:
    runs, rows = plan.manifests, len(plan.manifests) // repeats
    assert len(runs) == rows * repeats
    return [list(runs[first : first + rows]) for first in range(0, len(runs), rows)]


@settings(max_examples=25)
@given(requests())
def test_every_row_has_each_of_its_repeats_once_in_rounds_that_alternate(asked):
    rounds = rounds_of(make_plan(asked, STACKS), asked.repeats)
    first = [row_of(manifest) for manifest in rounds[0]]
    assert len(set(first)) == len(first) > 0
    for number, runs in enumerate(rounds, start=1):
        assert {manifest.run.repeat for manifest in runs} == {number}
        assert [row_of(manifest) for manifest in runs] == (first if number % 2 else first[::-1])


@settings(max_examples=25)
@given(requests())
def test_the_same_request_is_the_same_plan_and_another_seed_is_another_of_the_same_rows(asked):
    one, again = make_plan(asked, STACKS), make_plan(asked, STACKS)
    assert one == again and len({manifest.run.id for manifest in one.manifests}) == len(one.manifests)
    measure = asked.measure.model_copy(update={"seed": asked.measure.seed + 1})
    other = make_plan(asked.model_copy(update={"measure": measure}), STACKS)
    assert other.id != one.id and not {m.hash for m in one.manifests} & {m.hash for m in other.manifests}
    names = [(m.backend.name, m.size.name, m.layout.ranks, m.run.repeat) for m in one.manifests]
    assert [(m.backend.name, m.size.name, m.layout.ranks, m.run.repeat) for m in other.manifests] == names


@settings(max_examples=25)
@given(requests(), st.integers(1, 5))
def test_more_repeats_add_rounds_and_leave_the_first_ones_in_their_order(asked, more):
    wider = asked.model_copy(update={"repeats": asked.repeats + more})
    rounds, longer = (rounds_of(make_plan(each, STACKS), each.repeats) for each in (asked, wider))
    for ours, theirs in zip(rounds, longer, strict=False):
        names = [[(m.backend.name, m.work_hash, m.run.repeat) for m in each] for each in (ours, theirs)]
        assert names[0] == names[1]
