"""Phases of a modern RL iteration: limits that follow from physics, placements, candidates of all kinds at once."""

import numpy as np
import pytest

from suite.planner.formulas import generation as engine
from suite.planner.rl_iteration import KINDS, LIMITS, PHASES, band
from tests.planner.rl_work import rl_seconds


def test_an_iteration_of_phases_one_after_the_other_is_their_sum():
    found = rl_seconds()
    assert set(found.phases) == set(PHASES)
    assert found.seconds == pytest.approx(sum(found.phases.values()))
    assert found.fits.all()
    assert LIMITS[int(found.limit[0])].startswith("generation")


def test_a_pool_too_small_for_all_samples_makes_them_wait():
    roomy, tight = (rl_seconds(gen={"pool_share": share, "devices": 2}) for share in (0.9, 0.27))
    assert tight.phases["generation"] > roomy.phases["generation"]
    none = rl_seconds(gen={"pool_share": 0.1})
    assert not none.fits.any()


def test_a_latent_cache_is_not_divided_by_tensor_parallelism():
    assert engine.cache_ranks(8, 4, 0) == 4
    assert engine.cache_ranks(8, 1, 1) == 1


def test_steps_are_exact_where_lengths_are_even_or_all_run_together():
    assert engine.steps_to_the_last(64, 100, 100, 16) == 400
    assert engine.steps_to_the_last(16, 60, 100, 16) == 100


def test_the_longest_of_more_samples_is_longer_and_stops_at_the_cap():
    few, many = (float(engine.expected_longest(100, 0.5, 1e9, count)) for count in (4, 4096))
    draws = np.random.default_rng(0).lognormal(np.log(100) - 0.125, 0.5, (200, 4096)).max(1).mean()
    assert few < many
    assert many == pytest.approx(draws, rel=0.1)
    assert engine.expected_longest(100, 0.5, 120, 4096) == 120


def test_adapters_save_memory_fp8_saves_time_and_a_critic_costs():
    plain, adapters = rl_seconds(), rl_seconds(job={"low_rank": 1})
    assert adapters.memory["training"] < plain.memory["training"]
    assert rl_seconds(gen={"weight_bytes": 1.0}).phases["generation"] < plain.phases["generation"]
    assert rl_seconds(critic=1.0).phases["critic"] > plain.phases["training"]


def test_an_engine_across_the_network_waits_for_its_part_of_the_weights_and_less_with_more_ranks():
    def sync(devices, tensor):
        found = rl_seconds(gen={"devices": devices, "tensor": tensor}, job={"devices": 4}, colocated=0.0)
        return found.phases["sync"][0]

    whole = 2 * 8.03e9
    assert sync(12, 1) - sync(4, 1) == pytest.approx(whole / 50e9 - whole / 450e9, rel=1e-6)
    assert sync(12, 1) - sync(12, 4) == pytest.approx(whole * 3 / 4 / 50e9, rel=1e-6)


def test_every_kind_has_a_band_around_its_prediction():
    for kind in KINDS:
        low, high = band(kind)
        assert 0 < low < high
    with pytest.raises(KeyError):
        band("weather")
