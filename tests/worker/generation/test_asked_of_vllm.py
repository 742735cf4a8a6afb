"""What vLLM is asked for, without vLLM."""

from unittest import mock

import numpy
import torch

from suite.theory.bandwidth import ENGINE_SAMPLES
from suite.worker.generation.vllm import _MOST_SAMPLES, VllmGenerator, cache_blocks


def test_mbu_counts_with_as_many_samples_at_a_time_as_are_asked_for() -> None:
    assert _MOST_SAMPLES == ENGINE_SAMPLES


def test_a_cache_holds_the_samples_of_the_heaviest_replica_whichever_asks() -> None:
    assert cache_blocks([8] * 8 + [500] * 8, rows=8) == 8 * 4 + 2
    assert cache_blocks([128, 129] + [1] * 600, rows=301) == 254 + 1 + 2 + 2, "the longest of those at one time"


def test_what_vllm_draws_is_the_seeds_and_the_replicas_whatever_was_drawn_before() -> None:
    def drawn(replica: int) -> int:
        own = mock.Mock(_manifest={"measure": {"seed": 3}}, _generations=replica // 2)
        own._training.data_parallel_rank, own._world.device = replica % 2, torch.device("cpu")
        numpy.random.seed(replica)
        state = torch.random.get_rng_state()
        with VllmGenerator._own_random_numbers(own):
            found = numpy.random.randint(1 << 62) + int(torch.randint(1 << 31, ()))
        assert numpy.random.rand() == numpy.random.RandomState(replica).rand()
        assert torch.equal(torch.random.get_rng_state(), state)
        return int(found)

    assert drawn(0) == drawn(0) and len({drawn(each) for each in range(4)}) == 4
