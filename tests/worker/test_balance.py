"""Samples dealt to replicas by length: nearly equal tokens, and the same work in all.

Run as a script this file is one rank: ``python -m tests.worker.test_balance MANIFESTS``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.balance import assign_samples
from suite.worker.engines.base import Engine, LossFunction
from suite.worker.loop import Loop
from suite.worker.recorder import NullRecorder
from suite.worker.samples import Samples, join_responses
from suite.worker.world import World
from tests.worker.tiny import be_rank, tiny_body, told_by_ranks

LENGTHS = {"kind": "lognormal", "mean": 4.0, "sigma": 0.8, "cap": 8}
WORK = {
    "rollouts": 8,
    "micro_batch": 2,
    "lengths": LENGTHS,
    "algorithm": "grpo:kl_coefficient=0.1,loss=sequence",
    "group": 4,
}


@given(st.integers(1, 6), st.lists(st.integers(1, 500), min_size=1, max_size=12))
def test_every_replica_gets_as_many_samples_and_each_sample_one_replica(replicas: int, lengths: list[int]) -> None:
    lengths = lengths * replicas
    hands = assign_samples(lengths, replicas)
    assert sorted(number for hand in hands for number in hand) == list(range(len(lengths)))
    assert {len(hand) for hand in hands} == {len(lengths) // replicas}
    tokens = [sum(lengths[number] for number in hand) for hand in hands]
    assert max(tokens) - min(tokens) <= max(lengths), "no replica is ahead by more than a sample"
    for hand in hands:
        assert [lengths[number] for number in hand] == sorted((lengths[number] for number in hand), reverse=True)


class TinyEngine(Engine):
    """A model whose responses follow from the prompt and the sample's length alone, trained by plain gradient steps."""

    device = torch.device("cpu")
    replica_leader = True
    total_parameters = trainable_parameters = 1

    def __init__(self, manifest: dict[str, Any]) -> None:
        torch.manual_seed(0)
        self._vocab, self._micro = manifest["size"]["vocab"], manifest["work"]["micro_batch"]
        self.model = torch.nn.Embedding(self._vocab, self._vocab)  # the next token's logits by the one before
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


def test_micro_batches_are_slices_so_that_no_index_is_copied_to_the_device() -> None:
    samples = Samples(torch.arange(24).view(4, 6), [2] * 4, [4, 1, 3, 2])
    micros = [micro for micro, _ in samples.micro_batches(2)]
    assert [micro.tokens.data_ptr() for micro in micros] == [samples.tokens[row].data_ptr() for row in (0, 2)]
    assert [micro.lengths for micro in micros] == [[6, 3], [5, 4]]


def told_of(manifest: dict[str, Any]) -> dict[str, Any]:
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


def rank_program(world: World) -> None:
    print(json.dumps({name: told_of(manifest) for name, manifest in json.loads(Path(sys.argv[1]).read_text()).items()}))


@pytest.fixture
def ranks(tmp_path: Path) -> list[dict[str, Any]]:
    """What two ranks did, by name of the manifest."""
    cases: dict[str, Any] = {}
    for name, balance, steps in (("plain", False, 1), ("balanced", True, 1), ("steps", True, 2)):
        cases[name] = tiny_body(2, workload={**WORK, "optimizer_steps": steps}, layout={"balance": balance})
    (tmp_path / "manifests.json").write_text(json.dumps(cases))
    return told_by_ranks(["tests.worker.test_balance", str(tmp_path / "manifests.json")], 2, tmp_path)


@pytest.mark.ranks
@pytest.mark.timeout(400)
def test_balance_shares_tokens_evenly_and_changes_neither_samples_counts_nor_the_step(
    ranks: list[dict[str, Any]],
) -> None:
    samples = {name: [rank[name]["samples"] for rank in ranks] for name in ("plain", "balanced")}
    plain, balanced = (sorted(one + other) for one, other in samples.values())
    assert plain == balanced and len(plain) == 16
    apart = {name: abs(sum(map(len, one)) - sum(map(len, other))) for name, (one, other) in samples.items()}
    assert apart["balanced"] <= 1 < apart["plain"]
    told, expected = ranks[0]["balanced"], ranks[0]["plain"]
    assert told["counts"].pop("padded_tokens") < expected["counts"].pop("padded_tokens")
    assert (told["counts"], told["reward"]) == (expected["counts"], expected["reward"])
    assert told["kl"] == pytest.approx(expected["kl"], rel=1e-5) == 0.25
    assert told["weights"] == pytest.approx(expected["weights"], rel=1e-5, abs=1e-6)
    two_steps = ranks[0]["steps"]["weights"]
    assert told["weights"] != pytest.approx(two_steps, rel=1e-5, abs=1e-6), "what is compared does move"
    steps = [rank["steps"]["steps"] for rank in ranks]
    assert [[len(step) for step in own] for own in steps] == [[4, 4], [4, 4]]
    assert all(step == sorted(step, reverse=True) for own in steps for step in own)
    for one, other in zip(*steps, strict=True):
        assert abs(sum(one) - sum(other)) <= 3, "the replicas' steps are alike"


if __name__ == "__main__":
    be_rank(rank_program)
