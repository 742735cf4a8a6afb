"""Uneven lengths, padding, generation and the sides of split runs in the record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.bundle.files import DamagedBundle
from suite.bundle.rates import _percentile, realised_lengths
from suite.bundle.record import Record
from suite.spec.catalogue import find_device
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, SampleLengths
from suite.theory.bandwidth import decode_bytes
from tests.bundle.recorded import numbered, of_kind, ranks_of, recorded
from tests.synthetic import LLAMA, MIB, ROLLOUT, SYNC_SHARE, Event, facts_of, grpo_workload, synthetic_manifest

ENGINE = Layout(devices_per_node=2, data=2, generation="vllm", engine_sleep=True)
SPLIT = Layout(devices_per_node=3, data=2, placement="split", generation_ranks=1)


def uneven_manifest(layout: Layout = ENGINE, **changes: Any) -> Manifest:
    return synthetic_manifest(size=LLAMA, workload=grpo_workload(**changes), layout=layout)


def derived(tmp_path: Path, manifest: Manifest, change: Callable | None = None, rules: int = 2) -> Record:
    """The record of ranks that tell of their generation, after ``change`` of each rank's iterations."""
    ranks = ranks_of(manifest, rules=rules, rollout=ROLLOUT, staleness=0)
    for rank, events in ranks.items():
        for event in of_kind(events, "iteration") if change else ():
            change(rank, event)
    return recorded(tmp_path, manifest, ranks)


def test_the_lengths_are_those_of_the_manifest(tmp_path: Path) -> None:
    manifest = uneven_manifest(lengths={"kind": "list", "listed": [2, 4, 6, 24]})
    found = derived(tmp_path, manifest).lengths
    assert (found.response.mean, found.response.p50, found.response.max) == (9.0, 4, 24)
    assert found.response.at_cap is None, "a list has no cap"
    assert (found.prompt.mean, found.prompt.p99) == (8.0, 8)


def test_the_share_at_the_cap_counts_draws_that_ran_into_it(tmp_path: Path) -> None:
    manifest = uneven_manifest()
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
    assert record.counts.padded_tokens > 0
    assert record.padding.share == record.counts.padded_tokens / (2 * 8 * 32)
    assert not record.padding.packed
    packed = uneven_manifest(Layout(devices_per_node=2, data=2, packing=True))
    padding = derived(tmp_path / "packed", packed).padding
    assert (padding.padded_tokens, padding.share, padding.packed) == (0, 0.0, True)


def test_padding_may_differ_between_iterations_and_its_mean_is_told(tmp_path: Path) -> None:
    def change(rank: int, event: Event) -> None:
        event["counts"] = {**event["counts"], "padded_tokens": 100 + event["iteration"] % 2}

    record = derived(tmp_path / "uneven", uneven_manifest(), change)
    assert record.counts.padded_tokens == 100, "of 100.5, to the even one"
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
    manifest = uneven_manifest(SPLIT, lengths={"kind": "list", "listed": [2, 4, 6, 8]}, group=2, rollouts=4)
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
    assert record.rollout.idle_slot_seconds == pytest.approx(1.5), "the warm-up does not count"
    assert record.rollout.logprob_difference_max == pytest.approx(0.2)
    assert record.rollout.logprob_difference_mean == pytest.approx(0.01)
    assert record.rollout.effective_sample_size == 1.0, "it is never above one by rounding"


def test_sync_is_a_phase_without_tokens_and_rates_count_real_ones(tmp_path: Path) -> None:
    record = derived(tmp_path, uneven_manifest(algorithm="grpo:kl_coefficient=0.25"))
    assert record.algorithm == "grpo:kl_coefficient=0.25", "told with the options that are not its defaults"
    assert (record.phases.sync.share, record.phases.sync.tokens_per_second) == (pytest.approx(SYNC_SHARE), None)
    assert record.phase_intervals and list(record.phase_intervals)[:2] == ["sync", "generate"]
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

    note = "ranks tell a staleness of 1, although the layout lets every rank generate and train in turn"
    for manifest, notes in ((uneven_manifest(SPLIT, rollouts=8), ()), (uneven_manifest(), (note,))):
        record = derived(tmp_path / manifest.run.id, manifest, change)
        assert (record.staleness, record.notes) == (1, notes)


def test_ranks_that_tell_different_staleness_are_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedBundle, match="staleness is 1 on rank 1 in iteration 3, but 0 on rank 0"):
        derived(
            tmp_path, uneven_manifest(), lambda rank, event: event.update(staleness=rank * (event["iteration"] == 3))
        )


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
    with pytest.raises(DamagedBundle, match=r"rank-0\.jsonl line .*: iteration event: rollout is ") as caught:
        derived(tmp_path, uneven_manifest(), lambda rank, event: event["rollout"].update({field: value}))
    assert len(str(caught.value)) < 400


def test_lengths_that_are_none_are_damage() -> None:
    manifest = uneven_manifest()
    for response in ((0, *([4] * 15)), ()):
        lengths = SampleLengths(prompt=(8,) * 16, response=response)
        work = manifest.work.model_copy(update={"lengths": lengths})
        with pytest.raises(DamagedBundle, match="a length below one token"):
            realised_lengths(manifest.model_copy(update={"work": work}))


H100 = "NVIDIA H100 80GB HBM3"


def generation_events(manifest: Manifest, seconds: float, samples: int | None = None, **options: Any) -> list[Event]:
    """Rank 2: half of each iteration it generates, the rest it waits."""
    events = ranks_of(manifest, seconds, memory_bytes=64 * MIB, **options)[2]
    kept = [event for event in events if event.get("phase") in (None, "setup", "generate")]
    nothing = dict.fromkeys(("trained_tokens", "optimizer_steps", "trainable_parameters"), 0)
    for event in of_kind(kept, "iteration"):
        event["counts"] = {**event["counts"], **nothing, "samples": samples or event["counts"]["samples"]}
    return numbered(kept)


def split_record(root: Path, manifest: Manifest | None = None, status: str = "ok", **generation: Any) -> Record:
    manifest = manifest or synthetic_manifest(layout=SPLIT)
    facts = {**facts_of(manifest, H100 if manifest.measure.device == "cuda" else None), "derivation": 2}
    told: dict[str, Any] = {"facts": facts, "ended": status == "ok"}
    ranks = ranks_of(manifest, 2.0, completed=generation.pop("trained", None), **told)
    ranks[2] = generation_events(manifest, 3.0, **told, **generation)
    return recorded(root, manifest, ranks, status)


def test_the_training_side_makes_the_iterations_and_all_devices_the_rate(tmp_path: Path) -> None:
    record = split_record(tmp_path)
    assert record.status == "ok", record.failure
    assert set(record.iterations.seconds) == {2.0}
    assert record.throughput.samples_per_second.value == pytest.approx(12 / 2.0)
    assert record.throughput.tokens_per_second_per_device.value == pytest.approx(12 * 16 / 2.0 / 3)
    assert record.phases.generate.seconds == pytest.approx(1.0)
    assert record.phases.generate.tokens_per_second is None, "what is waited for is no rate of generation"
    assert record.waits.keys() == {"generate", "score", "reference", "reward", "train"}


def test_each_side_has_its_own_time_and_memory(tmp_path: Path) -> None:
    record = split_record(tmp_path)
    overlap = record.overlap
    assert (overlap.exposed_generate_seconds, overlap.generation_busy_seconds) == pytest.approx((1.0, 1.5))
    training, generation = overlap.sides["training"], overlap.sides["generation"]
    assert (training.ranks, training.busy_seconds, training.waiting_seconds) == pytest.approx((2, 0.9, 1.0))
    assert (generation.ranks, generation.busy_seconds, generation.waiting_seconds) == pytest.approx((1, 1.5, 1.5))
    assert generation.phases == pytest.approx({"generate": 1.5})
    assert generation.memory.peak_allocated_bytes == 64 * MIB
    assert training.memory.peak_allocated_bytes == record.memory.peak_allocated_bytes == 512 * MIB
    assert "kv_cache" not in record.memory.floor.parts
    assert record.memory.floor.by_phase["generate"] < record.memory.floor.by_phase["train"]


def test_a_generation_side_that_did_other_work_takes_the_rate_away(tmp_path: Path) -> None:
    record = split_record(tmp_path, samples=11)
    assert (record.status, record.counts, record.throughput) == ("failed", None, None)
    assert any("samples is 11 on rank 2" in note for note in record.notes)


def test_a_run_that_lost_its_generation_side_keeps_what_both_sides_completed(tmp_path: Path) -> None:
    record = split_record(tmp_path, status="failed", trained=6, completed=4)
    assert (record.status, len(record.iterations.seconds)) == ("failed", 6)
    assert record.overlap.generation_busy_seconds == pytest.approx(1.5)
    assert split_record(tmp_path / "early", status="failed", trained=3, completed=1).overlap is None


def test_bandwidth_is_that_of_the_devices_that_decode(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=SPLIT, device="cuda", precision="bf16")
    compute = split_record(tmp_path, manifest).compute
    whole = manifest.work.model_copy(update={"replica_rollouts": 12})
    read = decode_bytes(manifest.size, manifest.workload, whole, manifest.layout, "bf16")
    assert compute.mbu == pytest.approx(read / (1.5 * find_device(H100).memory_bytes_per_second))
    assert compute.mfu == pytest.approx(compute.model_flops / (2.0 * compute.peak_flops * 3))
