"""A model that knows the token before and no more: enough to generate, score and learn."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from suite.worker.engines.base import Engine, LossFunction
from suite.worker.samples import Samples
from suite.worker.world import World


class Bigram(nn.Module):
    """Next-token logits and a value from the embedding of the token before: [b, t] -> [b, t, V], [b, t]."""

    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.head, self.value = nn.Linear(hidden, vocab), nn.Linear(hidden, 1)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states = self.embedding(tokens)
        return self.head(states), self.value(states).squeeze(-1)


class BigramEngine(Engine):
    """Replicas that average their gradients by hand."""

    notes = ("a toy: its figures say nothing of any stack",)

    def __init__(self, manifest: dict[str, Any], world: World) -> None:
        size, optimizer = manifest["size"], manifest["workload"]["optimizer"]
        self.device = world.device
        self.data_parallel_rank, self.data_parallel_size, self.replica_leader = world.rank, world.world_size, True
        self._micro_batch = manifest["work"]["micro_batch"]
        torch.manual_seed(manifest["measure"]["seed"])
        self._policy, self._frozen = (Bigram(size["vocab"], size["hidden"]).to(world.device) for _ in range(2))
        self._frozen.load_state_dict(self._policy.state_dict())
        self._optimizer = torch.optim.AdamW(self._policy.parameters(), lr=optimizer["learning_rate"])
        self.total_parameters = self.trainable_parameters = sum(part.numel() for part in self._policy.parameters())
        torch.manual_seed(manifest["measure"]["seed"] + world.rank)

    @torch.no_grad()
    def generate(self, prompts: Samples) -> Samples:
        tokens = prompts.tokens
        for _ in range(prompts.longest_response):
            logits, _ = self._policy(tokens[:, -1:])
            tokens = torch.cat([tokens, torch.multinomial(logits[:, -1].softmax(-1), 1)], dim=1)
        return Samples(tokens, prompts.prompt_lengths, prompts.response_lengths)

    @torch.no_grad()
    def score(self, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        return _of_responses(self._policy, samples)

    @torch.no_grad()
    def reference(self, samples: Samples) -> torch.Tensor:
        return _of_responses(self._frozen, samples)[0]

    def train(self, samples: Samples, batch: dict[str, torch.Tensor], loss_fn: LossFunction) -> dict[str, float]:
        share = self._micro_batch / len(samples)
        sums: dict[str, float] = {}
        self._optimizer.zero_grad()
        for micro, rows in samples.micro_batches(self._micro_batch, batch):
            loss, parts = loss_fn(*_of_responses(self._policy, micro), rows)
            (loss * share).backward()
            for name, value in parts.items():
                sums[name] = sums.get(name, 0.0) + float(value) * share
        for parameter in self._policy.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.data_parallel_size
        self._optimizer.step()
        return sums


def _of_responses(model: Bigram, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and values of response tokens, [b, R] each; the driver refuses samples that differ in length."""
    prompt_tokens = samples.prompt_lengths[0]
    logits, values = model(samples.tokens[:, prompt_tokens - 1 : -1])
    chosen = logits.log_softmax(-1).gather(-1, samples.responses().unsqueeze(-1)).squeeze(-1)
    return chosen, values
