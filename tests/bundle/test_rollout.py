"""Uneven lengths, padding and generation in the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.bundle.files import DamagedBundle
from suite.bundle.record import Record
from suite.bundle.rollout import _percentile, realised_lengths
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, SampleLengths
from tests.bundle.recorded import of_kind, ranks_of, recorded
from tests.synthetic import LLAMA, ROLLOUT, SYNC_SHARE, Event, grpo_workload, synthetic_manifest

ENGINE = Layout(devices_per_node=2, data=2, generation="vllm", engine_sleep=True)


def uneven_manifest(layout: Layout = ENGINE, **changes: Any) -> Manifest:
    return synthetic_manifest(size=LLAMA, workload=grpo_workload(**changes), layout=layout)


def derived(
    tmp_path: Path, manifest: Manifest, change: Callable[[int, Event], object] | None = None, rules: int = 2
) -> Record:
    """The record of ranks that tell of their generation, after ``change`` of each rank's iterations."""
    ranks = ranks_of(manifest, rules=rules, rollout=ROLLOUT, staleness=0)
    for rank, events in ranks.items():
        for event in of_kind(events, "iteration") if change else ():
            change(rank, event)
    return recorded(tmp_path, manifest, ranks)


def test_the_lengths_are_those_of_the_manifest(tmp_path: Path) -> None:
    manifest = uneven_manifest(lengths={"kind": "list", "listed": [2, 4, 6, 24]})
    found = derived(tmp_path, manifest).lengths
    assert found is not None
    assert (found.response.mean, found.response.p50, found.response.max) == (9.0, 4, 24)
    assert found.response.at_cap is None, "a list has no cap"
    assert (found.prompt.mean, found.prompt.p99) == (8.0, 8)


def test_the_share_at_the_cap_counts_draws_that_ran_into_it(tmp_path: Path) -> None:
    manifest = uneven_manifest()
    assert manifest.work.lengths is not None
    responses = manifest.work.lengths.response
    found = derived(tmp_path, manifest).lengths
    assert found is not None and found.response.at_cap == responses.count(24) / 16 > 0.125


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300), st.sampled_from([50, 90, 99]))
def test_a_percentile_is_the_least_length_that_so_many_do_not_exceed(lengths: list[int], percent: int) -> None:
    found = _percentile(sorted(lengths), percent)
    assert found in lengths
    assert 100 * sum(length <= found for length in lengths) >= percent * len(lengths)
    assert 100 * sum(length < found for length in lengths) < percent * len(lengths)


def test_padding_is_a_share_of_all_positions_that_train(tmp_path: Path) -> None:
    manifest = uneven_manifest()
    record = derived(tmp_path / "padded", manifest)
    assert record.counts and record.padding and record.counts.padded_tokens > 0
    assert record.padding.share == record.counts.padded_tokens / (2 * 8 * 32)
    assert not record.padding.packed
    packed = uneven_manifest(Layout(devices_per_node=2, data=2, packing=True))
    padding = derived(tmp_path / "packed", packed).padding
    assert padding and (padding.padded_tokens, padding.share, padding.packed) == (0, 0.0, True)


def test_padding_may_differ_between_iterations_and_its_mean_is_told(tmp_path: Path) -> None:
    def change(rank: int, event: Event) -> None:
        event["counts"] = {**event["counts"], "padded_tokens": 100 + event["iteration"] % 2}

    record = derived(tmp_path / "uneven", uneven_manifest(), change)
    assert record.counts and record.counts.padded_tokens == 100, "of 100.5, to the even one"
    record = derived(tmp_path / "even", synthetic_manifest(layout=ENGINE), change)
    assert record.counts is None and "padded_tokens is 101 on rank 0 in iteration 3" in record.notes[0]


def test_ranks_that_tell_different_padding_of_one_iteration_have_no_rate(tmp_path: Path) -> None:
    def change(rank: int, event: Event) -> None:
        if event["iteration"] == 4:
            event["counts"] = {**event["counts"], "padded_tokens": 100 + rank}

    record = derived(tmp_path, uneven_manifest(), change)
    assert record.counts is None
    assert "padded_tokens is 101 on rank 1 in iteration 4, but 100 on rank 0 in iteration 4" in record.notes[0]


def test_slots_are_idle_from_a_samples_end_to_that_of_the_longest_of_its_replica(tmp_path: Path) -> None:
    manifest = uneven_manifest(lengths={"kind": "list", "listed": [2, 4, 6, 8]}, group=2, rollouts=2)
    record = derived(tmp_path / "two", manifest)
    assert record.rollout and record.rollout.idle_slot_share == pytest.approx(1 - 20 / (2 * 4 + 2 * 8))
    untold = recorded(tmp_path / "untold", manifest, ranks_of(manifest, rules=2)).rollout
    assert untold and untold.idle_slot_share == record.rollout.idle_slot_share, "which no rank has to tell"
    split = Layout(devices_per_node=3, data=2, placement="split", generation_ranks=1)
    manifest = uneven_manifest(split, lengths={"kind": "list", "listed": [2, 4, 6, 8]}, group=2, rollouts=4)
    record = derived(tmp_path / "one", manifest)
    assert record.rollout and record.rollout.idle_slot_share == pytest.approx(1 - 5 / 8), "one rank generates them all"


def test_figures_of_generation_are_means_over_ranks_and_counted_iterations(tmp_path: Path) -> None:
    def change(rank: int, event: Event) -> None:
        event["rollout"] = {
            "idle_slot_seconds": 1.0 + rank + 100 * (event["iteration"] < 2),
            "logprob_difference_mean": 0.01,
            "logprob_difference_max": 0.1 * (1 + rank) if event["iteration"] == 4 else 0.05,
            "effective_sample_size": 1.0000001,
            "other_engines_figure": -3,
        }

    record = derived(tmp_path, uneven_manifest(), change)
    assert record.rollout is not None
    assert record.rollout.idle_slot_seconds == pytest.approx(1.5), "the warm-up does not count"
    assert record.rollout.logprob_difference_max == pytest.approx(0.2)
    assert record.rollout.logprob_difference_mean == pytest.approx(0.01)
    assert record.rollout.effective_sample_size == 1.0, "it is never above one by rounding"


def test_sync_is_a_phase_without_tokens_and_rates_count_real_ones(tmp_path: Path) -> None:
    record = derived(tmp_path, uneven_manifest(algorithm="grpo:kl_coefficient=0.25"))
    assert record.algorithm == "grpo:kl_coefficient=0.25", "told with the options that are not its defaults"
    assert record.phases and record.phases.sync
    assert (record.phases.sync.share, record.phases.sync.tokens_per_second) == (pytest.approx(SYNC_SHARE), None)
    assert record.phase_intervals and list(record.phase_intervals)[:2] == ["sync", "generate"]
    assert record.counts and record.phases.generate and record.throughput
    assert record.phases.generate.tokens_per_second == pytest.approx(record.counts.response_tokens / 0.5)
    real = record.counts.prompt_tokens + record.counts.response_tokens
    assert record.throughput.tokens_per_second.value == pytest.approx(real)
    assert real < 16 * 32


def test_what_was_told_of_generation_before_these_figures_is_not_in_the_record(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=ENGINE)
    record = derived(tmp_path / "old", manifest, rules=1)
    assert (record.rollout, record.staleness) == (None, None)
    record = derived(tmp_path / "new", manifest)
    assert record.rollout and record.rollout.idle_slot_share is None
    assert (record.lengths, record.padding, record.algorithm, record.staleness) == (None, None, None, 0)


def test_the_staleness_is_that_of_the_counted_iterations(tmp_path: Path) -> None:
    def change(rank: int, event: Event) -> None:
        event["staleness"] = min(1, event["iteration"])

    split = Layout(devices_per_node=3, data=2, placement="split", generation_ranks=1)
    record = derived(tmp_path / "split", uneven_manifest(split, rollouts=8), change)
    assert (record.staleness, record.notes) == (1, ())
    record = derived(tmp_path / "colocated", uneven_manifest(), change)
    assert record.staleness == 1
    assert record.notes == (
        "ranks tell a staleness of 1, although the layout lets every rank generate and train in turn",
    )


def test_ranks_that_tell_different_staleness_are_damage(tmp_path: Path) -> None:
    def change(rank: int, event: Event) -> None:
        event["staleness"] = rank * (event["iteration"] == 3)

    with pytest.raises(DamagedBundle, match="staleness is 1 on rank 1 in iteration 3, but 0 on rank 0"):
        derived(tmp_path, uneven_manifest(), change)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("effective_sample_size", 1.1),
        ("effective_sample_size", -0.1),
        ("effective_sample_size", True),
        ("idle_slot_seconds", -1.0),
        ("idle_slot_seconds", 1e10),
        ("idle_slot_seconds", "long"),
        ("logprob_difference_max", -0.1),
        ("logprob_difference_mean", 0.06),
        ("something_else", []),
    ],
)
def test_a_figure_of_generation_that_cannot_be_is_named(tmp_path: Path, field: str, value: Any) -> None:
    def change(rank: int, event: Event) -> None:
        event["rollout"][field] = value

    with pytest.raises(DamagedBundle, match=r"rank-0\.jsonl line .*: iteration event: rollout is ") as caught:
        derived(tmp_path, uneven_manifest(), change)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["samples", "prompt_tokens", "response_tokens", "trained_tokens"])
def test_counts_that_are_not_the_manifests_lengths_give_no_rate(tmp_path: Path, name: str) -> None:
    def change(rank: int, event: Event) -> None:
        event["counts"] = {**event["counts"], name: event["counts"][name] + 1}

    record = derived(tmp_path, uneven_manifest(), change)
    assert (record.counts, record.throughput, record.padding) == (None, None, None)
    assert any(f"{name} is" in note and "the manifest asks for" in note for note in record.notes)


def test_lengths_that_are_none_are_damage() -> None:
    manifest = uneven_manifest()
    for response in ((0, *([4] * 15)), ()):
        lengths = SampleLengths(prompt=(8,) * 16, response=response)
        work = manifest.work.model_copy(update={"lengths": lengths})
        with pytest.raises(DamagedBundle, match="a length below one token"):
            realised_lengths(manifest.model_copy(update={"work": work}))
