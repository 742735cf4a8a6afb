"""What holds of every search of layouts: more memory and more devices never hurt, and nothing better is left out."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.backends.registry import find_backend
from suite.planner.ask import Question, question
from suite.planner.found import layouts as every_layout
from suite.planner.predict_manifest import predict_layout
from suite.planner.profiles import PROFILES
from suite.planner.search.answer import best_on
from suite.planner.search.request import Wishes, make_search
from suite.planner.space import Manner
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors, resolve_work

H100 = "H100-SXM-80GB"
GIB = 2**30


def with_memory(asked: Question, gib: float) -> Question:
    return replace(asked, hardware=replace(asked.hardware, memory_bytes=gib * GIB))


@cache
def grpo(backend: str) -> Question:
    work = find_workload("grpo").changed({"lengths": "fixed:512", "rollouts": 8})
    return question(find_size("1.3B"), work, H100, backend, manner=Manner("vllm", False, True))


@settings(max_examples=30)
@given(
    backend=st.sampled_from(sorted(PROFILES)),
    size=st.sampled_from(["1.3B", "6.7B"]),
    count=st.sampled_from([1, 2, 8]),
    gib=st.tuples(st.floats(8, 128), st.floats(8, 128)).map(sorted),
)
def test_more_memory_per_device_unfits_no_layout(backend, size, count, gib):
    asked = question(find_size(size), find_workload("trlx-ds-chat"), H100, backend)
    less, more = (every_layout(with_memory(asked, most), [count]).told for most in gib)
    assert len(less.fits) == len(more.fits) and not (less.fits & ~more.fits).any()
    if asked.manner.generation == "hf":
        assert less.seconds == pytest.approx(more.seconds), "memory that is not needed makes nothing faster"


@settings(max_examples=25)
@given(
    backend=st.sampled_from(["megatron", "deepspeed"]),
    counts=st.sets(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3),
    more=st.sets(st.sampled_from([1, 2, 4, 8, 16]), max_size=2),
)
def test_more_numbers_of_devices_to_choose_from_make_the_best_answer_no_slower(backend, counts, more):
    search = make_search([grpo(backend)], 4, Wishes(kinds=(H100,)), None)
    few, many = (best_on(search, sorted(each), 1) for each in (counts, counts | more))
    rates = [each.options[0].samples_per_second if each.options else 0.0 for each in (few, many)]
    assert rates[0] <= rates[1]
    assert many.considered >= few.considered
    front = [each.samples_per_second for each in many.front]
    assert front == sorted(front), "who takes more devices than another gets more for them"


def layouts(devices: int, backend: str) -> list[Layout]:
    """Every layout that can be written down of these settings, made without the search."""
    settings_of = find_backend(backend).settings
    ways = {
        "tensor": (1, 2, 4, 8),
        "pipeline": (1, 2, 4, 8),
        "zero_stage": (0, 1, 2, 3) if "zero_stage" in settings_of else (0,),
        "gather_for_generation": (False, True) if "gather_for_generation" in settings_of else (False,),
        "distributed_optimizer": (False, True),
        "recompute": ("none", "full"),
    }
    found = []
    for tensor, pipeline, stage, gathers, distributed, recompute in product(*ways.values()):
        if devices % (tensor * pipeline) == 0 and (stage == 3 or not gathers):
            body = {"tensor": tensor, "pipeline": pipeline, "data": devices // (tensor * pipeline)}
            body |= {"zero_stage": stage, "gather_for_generation": gathers}
            body |= {"distributed_optimizer": distributed, "recompute": recompute}
            found.append(Layout(devices_per_node=devices, sequence_parallel=tensor > 1, **body))
    return found


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize(("backend", "size"), [("megatron", "6.7B"), ("megatron", "1.3B"), ("deepspeed", "6.7B")])
def test_the_best_layout_is_that_of_trying_every_one(backend, size, devices):
    shape, driver = find_size(size), find_backend(backend)
    work = find_workload("trlx-ds-chat").changed({"rollouts": 8, "micro_batch": 4})
    asked = question(shape, work, H100, backend)
    kept = replace(asked, profile=replace(asked.profile, offload_optimizer=False, offload_parameters=False))
    measure, tried = Measure(device="cuda", precision="bf16"), []
    for layout, micro in product(layouts(devices, backend), (1, 2, 4)):
        own = work.model_copy(update={"micro_batch": micro})
        if layout_errors(shape, own, layout) + driver.errors(shape, own, layout, measure):
            continue
        found = predict_layout(shape, own, resolve_work(shape, own, layout), layout, backend, H100)
        tried += [found["samples_per_second"]] if found["fits"] else []
    best = kept.plan([devices]).options
    assert bool(best) == bool(tried)
    if tried:
        assert best[0].samples_per_second == pytest.approx(max(tried))
