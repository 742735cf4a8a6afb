"""Phases of an iteration: limits that follow from physics, placements, candidates of all kinds at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.planner.ask import Question, question
from suite.planner.formulas import generation as engine
from suite.planner.found import Found, layouts
from suite.planner.iteration import LIMITS, PHASES
from suite.planner.parameters import load_parameters
from suite.planner.profiles import PROFILES
from suite.planner.training import step_seconds
from suite.spec.catalogue import find_size, find_workload
from tests.planner.rl_work import rl_seconds, training
from tools.planner.rl_cells import expected_longest

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


def test_the_longest_of_more_samples_is_longer_and_stops_at_the_cap():
    few, many = (expected_longest(100, 0.5, 1e9, count) for count in (4, 4096))
    random = np.random.default_rng(0)
    for count, found in ((4, few), (4096, many)):
        draws = random.lognormal(np.log(100) - 0.125, 0.5, (400, count)).max(1).mean()
        assert found == pytest.approx(draws, rel=0.06)
    assert few < many and expected_longest(100, 0.5, 120, 4096) == 120


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
