"""One rank of ``test_balance.py``: iterations of a tiny GPT-2 in plain PyTorch, plain and balanced, and what they did.

``python -m tests.worker.balanced_rank MANIFESTS OUT``: a JSON object of manifests by name, and a file to write.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from suite.worker.engines.base import Engine, LossFunction
from suite.worker.loop import Loop
from suite.worker.recorder import NullRecorder
from suite.worker.samples import Samples, join_responses


class TinyGPT2(torch.nn.Module):
    """Learned positions, a block with its norms first, tied embeddings; of PyTorch alone, which starts quickly."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocab, 16), torch.nn.Embedding(16, 16)
        self.block = torch.nn.TransformerEncoderLayer(
            16, 2, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        columns = tokens.size(1)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(columns)
        states = self.tokens(tokens) + self.positions.weight[:columns]
        return self.block(states, src_mask=causal, is_causal=True) @ self.tokens.weight.T / 4


class TinyEngine(Engine):
    """A model whose responses follow from the prompt and the sample's length alone, trained by plain gradient steps."""

    device = torch.device("cpu")
    replica_leader = True
    total_parameters = trainable_parameters = 1

    def __init__(self, manifest: dict[str, Any]) -> None:
        torch.manual_seed(0)
        self._vocab, self._micro = manifest["size"]["vocab"], manifest["work"]["micro_batch"]
        self.model = TinyGPT2(self._vocab)
        self.data_parallel_rank, self.data_parallel_size = dist.get_rank(), dist.get_world_size()
        self.scored: list[list[int]] = []
        self.steps: list[list[int]] = []

    def generate(self, prompts: Samples) -> Samples:
        tokens = torch.zeros(len(prompts), max(prompts.lengths), dtype=torch.int64)
        for row, (prompt, response) in enumerate(zip(prompts.prompt_lengths, prompts.response_lengths, strict=True)):
            own = prompts.tokens[row, :prompt]
            tokens[row, :prompt] = own
            tokens[row, prompt : prompt + response] = (own.sum() + 7 * torch.arange(response)) % self._vocab
        return Samples(tokens, prompts.prompt_lengths, prompts.response_lengths)

    def score(self, samples: Samples) -> tuple[torch.Tensor, None]:
        self.scored = [samples.tokens[row, :length].tolist() for row, length in enumerate(samples.lengths)]
        with torch.no_grad():
            parts = [self._logprobs(micro) for micro, _ in samples.micro_batches(self._micro)]
        return join_responses(parts, samples.longest_response), None

    def reference(self, samples: Samples) -> torch.Tensor:
        return self.score(samples)[0] - 0.25 * samples.mask()

    def train(self, samples: Samples, batch: dict[str, torch.Tensor], loss_fn: LossFunction) -> dict[str, float]:
        self.steps.append(samples.lengths)
        micros = len(samples) // self._micro
        padded = 0
        self.model.zero_grad()
        for micro, rows in samples.micro_batches(self._micro, batch):
            padded += micro.tokens.numel() - micro.real_tokens
            loss, _ = loss_fn(self._logprobs(micro), None, rows)
            (loss / micros / self.data_parallel_size).backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.1 * parameter.grad
        return {"padded_tokens": float(padded)}

    def _logprobs(self, samples: Samples) -> torch.Tensor:
        logprobs = self.model(samples.tokens).log_softmax(-1)
        of_tokens = logprobs[:, :-1].gather(2, samples.tokens[:, 1:, None]).squeeze(2)
        return of_tokens.gather(1, samples.response_positions() - 1) * samples.mask()


def run(manifest: dict[str, Any]) -> dict[str, Any]:
    engine = TinyEngine(manifest)
    counts, stats = Loop(engine, manifest).run_iteration(0, NullRecorder())
    weights = torch.cat([parameter.detach().flatten() for parameter in engine.model.parameters()])
    return {
        "counts": counts,
        "reward": stats["reward"],
        "kl": stats["kl"],
        "samples": engine.scored,
        "steps": engine.steps,
        "weights": weights.tolist(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {name: run(manifest) for name, manifest in json.loads(Path(sys.argv[1]).read_text()).items()}
    Path(sys.argv[2], f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
