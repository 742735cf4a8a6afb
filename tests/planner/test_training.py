"""Step times move as physics says they must."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.planner.formulas import blocks
from suite.planner.parameters import load_parameters
from suite.planner.training import forward_seconds, step_parts, step_seconds
from tests.planner.rl_work import job as usual_job
from tools.planner.columns import alone, jobs_of

P = load_parameters()
PRETRAINING = {"sequence": 8192, "attended": 8192, "global_batch": 128, "micro_batch": 1, "devices": 8, "pipeline": 1}


def work(**changes):
    return alone(jobs_of([usual_job(**{**PRETRAINING, "recompute": 0, **changes})]))


def parts(**changes):
    return {name: float(value[0]) for name, value in step_parts(work(**changes), P.values).items()}


def fastest_seconds(jobs):
    """Model FLOPs over the 16-bit peak."""
    tokens = jobs.global_batch * jobs.sequence
    layer = blocks.linear_flops(tokens, jobs.elements, 1)
    layer = layer + blocks.attention_flops(tokens, jobs.sequence, jobs.hidden, 1, 0)
    return (
        3 * (jobs.layers * layer + blocks.head_flops(tokens, jobs.hidden, jobs.vocab, 1)) / (jobs.devices * jobs.peak)
    )


@settings(max_examples=30)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 8, 64]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from([0, 1, 2]),
)
def test_no_step_is_faster_than_the_peak_allows(tensor, pipeline, data, recompute, precision):
    one = work(
        tensor=tensor,
        pipeline=pipeline,
        devices=tensor * pipeline * data,
        global_batch=64 * data,
        recompute=recompute,
        precision=precision,
    )
    fastest = fastest_seconds(one.jobs) / {0: 1, 1: 2, 2: 4}[precision]
    assert float(step_seconds(one, P.values)[0]) > fastest[0] / 1.05


def test_a_tensor_parallel_group_that_spans_nodes_goes_at_the_pace_of_their_network():
    layout = {"devices": 16, "tensor": 16, "link": 300e9, "network": 25e9}
    inside, across = parts(**layout, node_devices=16), parts(**layout, node_devices=8)
    assert across["tensor parallel"] == pytest.approx(1.5 * inside["tensor parallel"])
    alone = parts(devices=16, tensor=8, context=2, node_devices=8)["context parallel"]
    assert alone == pytest.approx(9 * parts(devices=16, tensor=8, context=2, node_devices=16)["context parallel"])


MIXTURE = {"experts": 128, "experts_per_token": 8, "ffn": 768, "hidden": 2048}


@pytest.mark.parametrize("degree", [8, 16, 64])
def test_tokens_go_to_experts_of_other_nodes_over_each_devices_own_card(degree):
    """On eight H100s a node the ring of all cards is said to carry 400 GB/s; one card carries 50."""
    one = work(**MIXTURE, devices=64, expert_parallel=degree, global_batch=64)
    found = float(step_parts(one, P.values)["expert parallel"][0])
    whole = 2 * 8192 * 2048 * 8
    near = min(8, degree)
    slowest = max(whole * (near - 1) / degree / 450e9, whole * (degree - near) / degree / 50e9)
    assert found == pytest.approx(32 * 2 * slowest * 2)


def test_scoring_passes_the_keys_of_a_context_parallel_group_too():
    slow, fast = (work(context=8, devices=64, link=rate, network=rate) for rate in (1e8, 1e12))
    seconds = [float(forward_seconds(one, P.values)[0]) for one in (slow, fast)]
    assert seconds[0] > 2 * seconds[1]


def test_a_chip_with_more_power_for_each_product_reaches_more_of_its_peak():
    few, many = (parts(power_share=share)["matrix products"] for share in (1.0, 3.8))
    assert many < few
    assert parts(power_share=100.0)["matrix products"] == parts(power_share=50.0)["matrix products"]
