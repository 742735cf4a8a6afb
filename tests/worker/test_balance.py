"""Samples dealt to replicas by length: nearly equal tokens, and the same work in all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.balance import deal
from tests.worker.tiny import run_program, tiny_manifest

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
    hands = deal(lengths, replicas)
    assert sorted(number for hand in hands for number in hand) == list(range(len(lengths)))
    assert {len(hand) for hand in hands} == {len(lengths) // replicas}
    tokens = [sum(lengths[number] for number in hand) for hand in hands]
    assert max(tokens) - min(tokens) <= max(lengths), "no replica is ahead by more than a sample"
    for hand in hands:
        assert [lengths[number] for number in hand] == sorted((lengths[number] for number in hand), reverse=True)


def test_lengths_as_they_are_drawn_are_dealt_nearly_equally() -> None:
    manifest = tiny_manifest(4, workload={**WORK, "rollouts": 64, "lengths": {**LENGTHS, "mean": 3.0}})
    assert manifest.work.lengths is not None
    lengths = [8 + response for response in manifest.work.lengths.response]
    tokens = [sum(lengths[number] for number in hand) for hand in deal(lengths, 4)]
    assert max(tokens) - min(tokens) <= 1


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks did, by name of the manifest."""
    folder = tmp_path_factory.mktemp("balance")
    cases: dict[str, Any] = {}
    for name, balance, steps in (("plain", False, 1), ("balanced", True, 1), ("steps", True, 2)):
        made = tiny_manifest(2, workload={**WORK, "optimizer_steps": steps}, layout={"balance": balance})
        cases[name] = made.model_dump(mode="json", by_alias=True)
    (folder / "manifests.json").write_text(json.dumps(cases))
    run_program(["tests.worker.balanced_rank", str(folder / "manifests.json"), str(folder)], 2, folder)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def tokens(rank: dict[str, Any], name: str) -> int:
    return sum(map(len, rank[name]["samples"]))


@pytest.mark.ranks
def test_the_samples_in_all_stay_the_same_and_their_tokens_are_shared_evenly(ranks: list[dict[str, Any]]) -> None:
    plain, balanced = (
        sorted(sample for rank in ranks for sample in rank[name]["samples"]) for name in ("plain", "balanced")
    )
    assert plain == balanced and len(plain) == 16
    apart = {name: abs(tokens(ranks[0], name) - tokens(ranks[1], name)) for name in ("plain", "balanced")}
    assert apart["balanced"] <= 1 < apart["plain"]


@pytest.mark.ranks
def test_balance_changes_neither_counts_nor_scores_nor_the_step_but_pads_less(ranks: list[dict[str, Any]]) -> None:
    plain, balanced = (ranks[0][name] for name in ("plain", "balanced"))
    assert balanced["counts"].pop("padded_tokens") < plain["counts"].pop("padded_tokens")
    assert balanced["counts"] == plain["counts"]
    assert balanced["reward"] == plain["reward"]
    assert balanced["kl"] == pytest.approx(plain["kl"], rel=1e-5) == 0.25
    assert balanced["weights"] == pytest.approx(plain["weights"], rel=1e-5, abs=1e-6)
    two_steps = ranks[0]["steps"]["weights"]
    assert balanced["weights"] != pytest.approx(two_steps, rel=1e-5, abs=1e-6), "what is compared does move"


@pytest.mark.ranks
def test_steps_of_a_balanced_batch_are_equal_in_samples_and_lie_by_length(ranks: list[dict[str, Any]]) -> None:
    steps = [rank["steps"]["steps"] for rank in ranks]
    assert [[len(step) for step in own] for own in steps] == [[4, 4], [4, 4]]
    for own in steps:
        assert all(step == sorted(step, reverse=True) for step in own)
    for one, other in zip(*steps, strict=True):
        assert abs(sum(one) - sum(other)) <= 3, "the replicas' steps are alike"
