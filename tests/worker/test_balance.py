"""Samples dealt to replicas by length: nearly equal tokens, and the same work in all."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.samples import assign_samples
from tests.worker.tiny import run_tiny, tiny_manifest

WORK = {
    "rollouts": 8,
    "micro_batch": 2,
    "lengths": {"kind": "lognormal", "mean": 4.0, "sigma": 0.8, "cap": 8},
    "algorithm": "grpo:kl_coefficient=0.1,loss=sequence",
    "group": 4,
    "reward": {"kind": "token-below", "threshold": 64},
    "optimizer": {"learning_rate": 1e-2},
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


def iterations(folder: Path, balance: bool, steps: int = 1) -> list[dict[str, Any]]:
    """Their events, of two real ranks; GRPO has no values, and no loss of them."""
    layout = {"balance": balance, "zero_stage": 1}
    run = run_tiny(folder, tiny_manifest(2, workload={**WORK, "optimizer_steps": steps}, layout=layout))
    assert run.exit_codes == [0, 0], run.errors
    events = run.events(kind="iteration")
    assert {event["stats"].pop("value_loss") for event in events} == {None}
    return events


@pytest.mark.ranks
@pytest.mark.ci
@pytest.mark.timeout(400)
def test_balance_pads_less_and_changes_neither_samples_counts_nor_the_step(tmp_path: Path) -> None:
    plain, balanced = (iterations(tmp_path / str(balance), balance) for balance in (False, True))
    steps = iterations(tmp_path / "steps", balance=True, steps=2)
    for one, other, apart in zip(plain, balanced, steps, strict=True):
        most = one["counts"].pop("padded_tokens")
        assert max(other["counts"].pop("padded_tokens"), apart["counts"]["padded_tokens"]) < most
        assert other["counts"] == one["counts"]
        assert other["stats"] == pytest.approx(one["stats"], rel=1e-3, abs=1e-5)
    assert steps[1]["stats"] != pytest.approx(plain[1]["stats"], rel=1e-3, abs=1e-5), "what is compared does move"
