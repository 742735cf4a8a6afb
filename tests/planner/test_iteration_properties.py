"""What holds of every predicted iteration, whatever its layout, its lengths and its devices."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.planner.ask import Question, question
from suite.planner.found import Found, layouts
from suite.planner.profiles import PROFILES
from suite.spec.catalogue import find_size, find_workload
from tests.planner.rl_work import rl_seconds

COUNTS = st.sampled_from([1, 2, 4, 8, 16, 64])


@st.composite
def rl_changes(draw: st.DrawFn) -> dict[str, dict[str, float]]:
    """Layouts and lengths of an iteration with engines."""
    response = draw(st.integers(1, 4000))
    tensor, pipeline, data = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2, 4])), draw(COUNTS)
    job = {"tensor": tensor, "pipeline": pipeline, "devices": tensor * pipeline * data}
    gen = {"response": response, "longest": response * draw(st.floats(1, 8)), "prompt": draw(st.integers(1, 2000))}
    engine = draw(st.sampled_from([1, 2, 4, 8]))
    return {"changed": job, "gen": {**gen, "tensor": engine, "devices": engine * draw(COUNTS)}}


def samples_of(changes: dict[str, dict[str, float]], samples: int) -> dict[str, dict[str, float]]:
    """The same with so many samples, trained on in four steps."""
    return {
        "changed": {**changes["changed"], "global_batch": samples / 4},
        "gen": {**changes["gen"], "samples": samples},
    }


@settings(max_examples=25)
@given(changes=rl_changes(), samples=st.sampled_from([64, 256, 1024]), times=st.sampled_from([2, 4, 16]))
def test_more_samples_take_longer_and_never_more_than_as_many_iterations(changes, samples, times):
    few, many = (rl_seconds(**samples_of(changes, samples * factor)) for factor in (1, times))
    assert few.seconds < many.seconds <= times * few.seconds * (1 + 1e-9)
    for phase in ("generate", "score", "train"):
        assert few.phases[phase] <= many.phases[phase] * (1 + 1e-9), phase


def ask(backend: str, rollouts: int, micro_batch: int, new_tokens: int) -> Question:
    changes = {"rollouts": rollouts, "micro_batch": micro_batch, "new_tokens": new_tokens}
    return question(find_size("1.3B"), find_workload("trlx-ds-chat").changed(changes), "H100-SXM-80GB", backend)


def table(asked: Question, count: int) -> tuple[list[tuple[float, ...]], Found]:
    """The choices that make each layout, its rollouts left out, and what is predicted of it."""
    found = layouts(asked, [count])
    choices = found.space.choices
    names = [name for name in choices if name != "rollouts"]
    return list(zip(*(choices[name].tolist() for name in names), strict=True)), found


@settings(max_examples=25)
@given(
    backend=st.sampled_from(sorted(PROFILES)),
    count=st.sampled_from([1, 2, 8, 32]),
    micro=st.sampled_from([1, 2, 4]),
    tokens=st.integers(1, 768),
)
def test_more_rollouts_take_longer_in_every_layout_and_need_no_less_memory(backend, count, micro, tokens):
    (keys, few), (more_keys, many) = (table(ask(backend, each, micro, tokens), count) for each in (8, 16))
    places = {key: place for place, key in enumerate(more_keys)}
    assert len(keys) and set(keys) <= set(places)
    same = [places[key] for key in keys]
    for found in (few, many):
        phases = np.array(list(found.told.phases.values()))
        assert np.isfinite(phases).all() and (phases >= 0).all() and (found.told.seconds > 0).all()
    assert (few.told.seconds < many.told.seconds[same]).all()
    assert (few.told.memory.total <= many.told.memory.total[same] * (1 + 1e-9)).all()
