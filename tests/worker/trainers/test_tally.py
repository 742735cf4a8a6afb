"""Counts of a trainer's iteration: from its tensors, over all replicas, held to the manifest."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from suite.worker.rank import ConfigError
from suite.worker.trainers.tally import Tally
from tests.worker.tiny import tiny_body
from tests.worker.trainers.runs import ALONE, group_of_one

PAD = 7


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    with group_of_one():
        yield


def tally(**more: Any) -> Tally:
    return Tally(tiny_body(), ALONE, **more)


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


@pytest.mark.parametrize(
    ("leader", "steps", "words"),
    [(True, 2, "optimizer_steps 1 wanted, 2 done"), (False, 1, "samples 4 wanted, 0 done")],
)
def test_a_step_too_many_and_a_rank_that_speaks_for_no_replica_are_told(leader: bool, steps: int, words: str) -> None:
    counted = tally(leader=leader)
    counted.add_samples(tokens(4, 8), tokens(4, 8), PAD)
    counted.trained_tokens, counted.optimizer_steps = 64, steps
    with pytest.raises(ConfigError, match=words):
        counted.counts(60, 100)


@pytest.mark.parametrize(("prompt", "response"), [(7, 8), (8, 9), (8, 7)])
def test_lengths_that_were_not_forced_are_refused_at_once(prompt: int, response: int) -> None:
    with pytest.raises(ConfigError, match=r"8 \+ 8 tokens were forced"):
        tally().add_samples(tokens(4, prompt), tokens(4, response), PAD)
