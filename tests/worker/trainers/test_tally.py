"""Counts of a trainer's iteration: from its tensors, over all replicas, held to the manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from suite.worker.rank import ConfigError
from suite.worker.trainers.tally import Tally
from suite.worker.world import World
from tests.worker.tiny import tiny_manifest

PAD = 7


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def tally(**more: Any) -> Tally:
    manifest = json.loads(tiny_manifest().model_dump_json(by_alias=True))
    return Tally(manifest, World(0, 1, 0, 1, torch.device("cpu")), **more)


def tokens(rows: int, columns: int, value: int = 1) -> torch.Tensor:
    return torch.full((rows, columns), value)


def test_padding_is_counted_apart_from_tokens_and_is_not_the_manifests_work() -> None:
    counted = tally()
    responses = tokens(4, 8)
    responses[0, 5:] = PAD
    counted.add_samples(tokens(4, 8), responses, PAD)
    assert (counted.prompt_tokens, counted.response_tokens, counted.padded_tokens) == (32, 29, 3)
    counted.trained_tokens, counted.optimizer_steps = 64, 1
    with pytest.raises(ConfigError, match="response_tokens 32 wanted, 29 done; padded_tokens 0 wanted, 3 done"):
        counted.counts(60, 100)


def test_an_optimizer_step_too_many_fails_the_run() -> None:
    counted = tally()
    counted.add_samples(tokens(4, 8), tokens(4, 8), PAD)
    counted.trained_tokens, counted.optimizer_steps = 64, 2
    with pytest.raises(ConfigError, match="optimizer_steps 1 wanted, 2 done"):
        counted.counts(60, 100)


@pytest.mark.parametrize(("prompt", "response"), [(7, 8), (8, 9), (8, 7)])
def test_lengths_that_were_not_forced_are_refused_at_once(prompt: int, response: int) -> None:
    with pytest.raises(ConfigError, match=r"8 \+ 8 tokens were forced"):
        tally().add_samples(tokens(4, prompt), tokens(4, response), PAD)


def test_a_rank_that_speaks_for_no_replica_adds_nothing() -> None:
    counted = tally(leader=False)
    counted.add_samples(tokens(4, 8), tokens(4, 8), PAD)
    counted.trained_tokens, counted.optimizer_steps = 64, 1
    with pytest.raises(ConfigError, match="samples 4 wanted, 0 done"):
        counted.counts(60, 100)


def test_a_cleared_tally_begins_again() -> None:
    counted = tally()
    for _ in range(2):
        counted.clear()
        counted.add_samples(tokens(4, 8), tokens(4, 8), PAD)
        counted.trained_tokens, counted.optimizer_steps = 64, 1
        assert counted.counts(60, 100)["trained_tokens"] == 64
