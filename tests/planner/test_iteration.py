"""Phases of an iteration and steps of training: limits that follow from physics, placements, whatever the layout.

The iteration is one of NeMo-RL on H100s: 8B parameters, GRPO, sixteen devices.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.planner.ask import Question
from suite.planner.formulas import blocks
from suite.planner.formulas import generation as engine
from suite.planner.found import Found, layouts
from suite.planner.iteration import LIMITS, PHASES, Predicted, predict
from suite.planner.parameters import load_parameters
from suite.planner.profiles import PROFILES
from suite.planner.training import forward_seconds, step_parts, step_seconds
from suite.planner.work import Generation, Pairs, Training
from tests.planner.test_modern import ask
from tools.planner.columns import alone, jobs_of
from tools.planner.entries import published_hardware
from tools.planner.stacks import traits

LLAMA = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256, "gated": 1}
LAYOUT = {"devices": 16, "tensor": 1, "pipeline": 2, "chunks": 1, "context": 1, "zero_stage": 1, "sequence_parallel": 0}
STEP = {"sequence": 1200.0, "attended": 1300.0, "global_batch": 512, "micro_batch": 3.2, "head_share": 1, "packed": 0}
WAYS = {"recompute": 3, "precision": 0, "low_rank": 0, "trained_share": 1, "offload_optimizer": 0, "tables": 2}
GENERATION = {"devices": 16, "tensor": 1, "samples": 2048, "prompt": 130, "response": 1060, "longest": 3964}


def job(**changes: Any) -> dict[str, Any]:
    device, stack = published_hardware("H100-SXM", 80), traits("NeMo-RL Megatron")
    return {**LLAMA, **device.columns(), **stack.columns(), **LAYOUT, **STEP, **WAYS, **changes}


def training(row: dict[str, Any] | None = None, **changes: Any) -> Training:
    usual = {"samples": 2048.0, "steps": 4, "weights": 8.03e9, "old": 1.0, "reference": 1.0}
    return alone(jobs_of([row or job()]), **{**usual, **changes})


def rl_seconds(changed=None, gen=None, how=None, **work) -> Predicted:
    """The prediction with these changes of the job, of generation, of where both stand, and of the rest."""
    row, generation = job(**(changed or {})), {"pool_share": 0.6, **GENERATION, **(gen or {})}
    one = {"pipeline": 1, "context": 1, "expert_parallel": 1, "tensor": generation["tensor"]}
    engine = Generation(jobs=jobs_of([{**row, **one}]), **generation)
    made = training(row, samples=float(generation["samples"]), **work)
    return predict(made, engine, Pairs.each(1, **(how or {})), load_parameters().values)


P = load_parameters().values


def test_an_iteration_of_phases_one_after_the_other_is_their_sum():
    found = rl_seconds()
    assert tuple(found.phases) == PHASES
    assert found.seconds == pytest.approx(sum(found.phases.values()))
    assert found.fits.all()
    assert LIMITS[int(found.limit[0])].startswith("generation")


def test_plain_training_is_the_special_case_of_training_alone():
    found = rl_seconds()
    assert found.phases["train"] == pytest.approx(4 * step_seconds(training(), P))
    assert step_seconds(training(old=0.0, reference=0.0), P) == step_seconds(training(), P)


def test_of_two_disjoint_sides_that_work_at_once_the_larger_sets_the_pace():
    """At balance a smooth maximum of exponent 4 says a fifth more."""
    apart = {"colocated": 0.0, "staleness": 1.0}
    for devices in (2, 8, 64):
        found = rl_seconds(gen={"devices": devices}, how=apart)
        learning = sum(column for name, column in found.phases.items() if name not in ("generate", "sync"))
        filled = found.generation["bulk"]
        assert found.seconds == pytest.approx(np.maximum(filled, learning) + found.phases["sync"])


def test_a_pool_too_small_for_all_samples_makes_them_wait():
    roomy, tight = (rl_seconds(gen={"pool_share": share, "devices": 2}) for share in (0.9, 0.27))
    assert tight.phases["generate"] > roomy.phases["generate"]
    assert not rl_seconds(gen={"pool_share": 0.1}).fits.any()


def test_a_latent_cache_is_not_divided_by_tensor_parallelism():
    assert engine.cache_ranks(8, 4, 0) == 4
    assert engine.cache_ranks(8, 1, 1) == 1


def test_steps_are_exact_where_lengths_are_even_or_all_run_together():
    assert engine.steps_to_the_last(64, 100, 100, 16) == 400
    assert engine.steps_to_the_last(16, 60, 100, 16) == 100


def test_the_largest_of_some_normals_is_that_of_order_statistics():
    """0.5642 of two and 0.8463 of three (David and Nagaraja, 2003, table 3.1); sqrt(2 ln n) says 1.18 and 1.48."""
    assert engine.expected_maximum(np.array([1, 2, 3])) == pytest.approx([0, 0.56419, 0.84628], abs=1e-3)
    draws = np.random.default_rng(1).normal(size=(4000, 64)).max(1).mean()
    assert float(engine.expected_maximum(64)) == pytest.approx(draws, rel=0.02)
    assert float(engine.fullest_share(0.5, 1, 2)) == pytest.approx(1 + 0.56419 * np.sqrt(np.expm1(0.25)), rel=1e-3)


def test_an_engine_computes_a_groups_prompt_once_and_one_positions_logits_for_each():
    alone, shared = (rl_seconds(gen={"group": group, "prompt": 2000}).generation["prefill"] for group in (1, 32))
    assert alone == pytest.approx(32 * shared)
    small, large = (rl_seconds({"vocab": vocab}, {"prompt": 2000}).generation["prefill"] for vocab in (32000, 256000))
    assert large < 1.01 * small, "the output head is a matrix of the size of two blocks, and sees one position of 2,000"


def test_adapters_save_memory_fp8_saves_time_and_a_critic_costs():
    plain, adapters = rl_seconds(), rl_seconds({"low_rank": 1})
    assert adapters.memory.total < plain.memory.total
    assert rl_seconds(gen={"weight_bytes": 1.0}).phases["generate"] < plain.phases["generate"]
    assert rl_seconds(critic=1.0).phases["train"] == pytest.approx(2 * plain.phases["train"])


def sync(changed, gen, **how):
    return float(rl_seconds(changed, gen, how).phases["sync"][0])


def test_weights_are_broadcast_whole_over_the_link_of_one_node_or_the_cards_of_all():
    apart, whole = {"colocated": 0.0}, 2 * 8.03e9 / P["send_share"]
    far, near = (sync({"devices": 4}, {"devices": devices}, **apart) for devices in (12, 4))
    assert far - near == pytest.approx(whole / 400e9 - whole / 450e9, rel=1e-6)
    assert sync({"devices": 4}, {"devices": 12, "tensor": 4}, **apart) == far
    slower = sync({"devices": 4, "network": 25e9}, {"devices": 12}, **apart)
    assert slower - far == pytest.approx(whole / 400e9, rel=1e-6)


def test_an_engine_that_wakes_waits_for_the_host_link_and_for_what_others_trained():
    usual, slow = (sync({"host_link": rate}, {}) for rate in (48e9, 24e9))
    assert slow - usual == pytest.approx(2 * 8.03e9 / 48e9 / P["wake_share"], rel=1e-6)
    assert sync({"pipeline": 8}, {}) > sync({"pipeline": 1}, {}), "seven eighths of the weights are on other ranks"
    assert sync({}, {"weight_bytes": 1.0}) > sync({}, {})


def test_what_is_offloaded_crosses_the_host_link_wherever_it_is_chosen():
    offloaded = {"zero_stage": 3, "zero_engine": 1, "pipeline": 1}
    plain, parameters = (rl_seconds(offloaded, offload_parameters=flag) for flag in (0.0, 1.0))
    share = 8.03e9 / 16
    micros = np.ceil(512 / 16 / 3.2)
    assert plain.training["offload"] == 0
    assert parameters.training["offload"] == pytest.approx(4 * micros * 3 * 2 * share / 48e9, rel=0.05)
    assert parameters.phases["score"] > plain.phases["score"]


def test_rewards_take_what_the_user_says_of_them():
    found = rl_seconds(reward=0.01)
    assert found.phases["reward"] - rl_seconds().phases["reward"] == pytest.approx(0.01 * 2048)


def test_every_kind_has_a_band_and_an_unknown_stack_the_wider_one():
    parameters = load_parameters()
    for kind, bands in parameters.bands.items():
        for band in (bands.known, bands.new):
            assert 0 < band.low < band.high, kind
    assert parameters.band("iteration", "nobody's", "hopper") == parameters.bands["iteration"].new
    stack, architecture = parameters.stacks[0].split("|")
    assert parameters.band("iteration", stack, architecture) == parameters.bands["iteration"].known
    assert parameters.band("iteration", stack, "nowhere") == parameters.bands["iteration"].new
    assert parameters.effect({"framework": "nemo megatron"}) != 0 == parameters.effect({"framework": "no such"})


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
    changes = {"micro_batch": micro, "new_tokens": tokens}
    (keys, few), (more_keys, many) = (table(ask("1.3B", backend, rollouts=n, **changes), count) for n in (8, 16))
    places = {key: place for place, key in enumerate(more_keys)}
    assert len(keys) and set(keys) <= set(places)
    same = [places[key] for key in keys]
    for found in (few, many):
        phases = np.array(list(found.told.phases.values()))
        assert np.isfinite(phases).all() and (phases >= 0).all() and (found.told.seconds > 0).all()
    assert (few.told.seconds < many.told.seconds[same]).all()
    assert (few.told.memory.total <= many.told.memory.total[same] * (1 + 1e-9)).all()


PRETRAINING = {"sequence": 8192, "attended": 8192, "global_batch": 128, "micro_batch": 1, "devices": 8, "pipeline": 1}


def work(**changes):
    return alone(jobs_of([job(**{**PRETRAINING, "recompute": 0, **changes})]))


def parts(**changes):
    return {name: float(value[0]) for name, value in step_parts(work(**changes), P).items()}


def fastest_seconds(jobs):
    """Model FLOPs over the 16-bit peak."""
    tokens = jobs.global_batch * jobs.sequence
    layer = blocks.linear_flops(tokens, jobs.elements, 1)
    layer = layer + blocks.attention_flops(tokens, jobs.sequence, jobs.hidden, 1, 0)
    forward = jobs.layers * layer + blocks.head_flops(tokens, jobs.hidden, jobs.vocab, 1)
    return 3 * forward / (jobs.devices * jobs.peak)


@settings(max_examples=30)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 8, 64]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from([0, 1, 2]),
)
def test_no_step_is_faster_than_the_peak_allows(tensor, pipeline, data, recompute, precision):
    layout = {"tensor": tensor, "pipeline": pipeline, "devices": tensor * pipeline * data}
    one = work(**layout, global_batch=64 * data, recompute=recompute, precision=precision)
    fastest = fastest_seconds(one.jobs) / {0: 1, 1: 2, 2: 4}[precision]
    assert float(step_seconds(one, P)[0]) > fastest[0] / 1.05


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
    found = float(step_parts(one, P)["expert parallel"][0])
    whole = 2 * 8192 * 2048 * 8
    near = min(8, degree)
    slowest = max(whole * (near - 1) / degree / 450e9, whole * (degree - near) / degree / 50e9)
    assert found == pytest.approx(32 * 2 * slowest * 2)


def test_scoring_passes_the_keys_of_a_context_parallel_group_too():
    slow, fast = (work(context=8, devices=64, link=rate, network=rate) for rate in (1e8, 1e12))
    seconds = [float(forward_seconds(one, P)[0]) for one in (slow, fast)]
    assert seconds[0] > 2 * seconds[1]


def test_a_chip_with_more_power_for_each_product_reaches_more_of_its_peak():
    few, many = (parts(power_share=share)["matrix products"] for share in (1.0, 3.8))
    assert many < few
    assert parts(power_share=100.0)["matrix products"] == parts(power_share=50.0)["matrix products"]
