"""One rank of a generation test: vLLM beside a plain Hugging Face model. ``python -m tests.worker.generation.rank``.

Prints one line of JSON for each family named in its arguments after the precision.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

from suite.worker.generation import find_generator
from suite.worker.generation.configuration import configuration
from suite.worker.progress import Progress
from suite.worker.rank import read_rank
from suite.worker.samples import Samples
from suite.worker.world import World, join
from tests.worker.tiny import tiny_manifest

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

        fields = configuration(manifest["size"], manifest["measure"]["precision"])
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


def told_of(family: str, precision: str, ranks: int, tensor: int) -> dict[str, Any]:
    """Generate, move the weights, sync, generate again."""
    longest = {"prompt_tokens": max(PROMPTS), "new_tokens": max(RESPONSES), "rollouts": 4, "micro_batch": 1}
    layout = {"generation": "vllm", "tensor": tensor, "data": ranks // tensor}
    measure = {"precision": precision}
    shape = {**SHAPES[family], "architecture": family}
    made = tiny_manifest(ranks, shape=shape, layout=layout, workload=longest, measure=measure, stack={})
    manifest = made.model_dump(mode="json", by_alias=True)
    make = find_generator(manifest)
    engine = PlainEngine(manifest, WORLD)
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    generator = make(manifest, WORLD, engine, Progress())
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
        "notes": generator.notes,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    WORLD = join(read_rank(os.environ), "cpu", 60.0)
    for each in sys.argv[3:]:
        print("TOLD " + json.dumps(told_of(each, sys.argv[1], WORLD.world_size, int(sys.argv[2]))))
