"""Records of split runs: the training side makes the iterations, the generation side is beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suite.bundle.record import Record
from suite.spec.catalogue import find_device
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.theory.bandwidth import decode_bytes
from tests.bundle.recorded import numbered, of_kind, ranks_of, record_of
from tests.synthetic import (
    MIB,
    Event,
    driver_events,
    facts_of,
    make_bundle,
    rank_events,
    synthetic_manifest,
    write_bundle,
)

SPLIT = Layout(devices_per_node=3, data=2, placement="split", generation_ranks=1)
H100 = "NVIDIA H100 80GB HBM3"


def generation_events(manifest: Manifest, seconds: float, samples: int | None = None, **options: Any) -> list[Event]:
    """Rank 2: half of each iteration it generates, the rest it waits."""
    events = rank_events(manifest, 2, lambda i, r: seconds, memory_bytes=64 * MIB, **options)
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
    return record_of(write_bundle(root, manifest, ranks, driver_events(manifest, status)))


def test_the_training_side_makes_the_iterations_and_all_devices_the_rate(tmp_path: Path) -> None:
    record = split_record(tmp_path)
    assert record.status == "ok", record.failure
    assert set(record.iterations.seconds) == {2.0}
    assert record.throughput.samples_per_second.value == pytest.approx(12 / 2.0)
    assert record.throughput.tokens_per_second_per_device.value == pytest.approx(12 * 16 / 2.0 / 3)
    assert record.phases.generate.seconds == pytest.approx(1.0)
    assert record.phases.generate.tokens_per_second is None, "what is waited for is no rate of generation"
    assert record.waits is not None
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


def test_a_colocated_run_has_no_sides(tmp_path: Path) -> None:
    record = record_of(make_bundle(tmp_path))
    assert record.overlap is None
    assert record.phases.generate.tokens_per_second is not None


def test_a_generation_side_that_did_other_work_takes_the_rate_away(tmp_path: Path) -> None:
    record = split_record(tmp_path, samples=11)
    assert record.counts is None
    assert record.throughput is None
    assert record.status == "failed"
    assert any("samples is 11 on rank 2" in note for note in record.notes)


def test_a_run_that_lost_its_generation_side_keeps_what_both_sides_completed(tmp_path: Path) -> None:
    record = split_record(tmp_path, status="failed", trained=6, completed=4)
    assert record.status == "failed"
    assert len(record.iterations.seconds) == 6
    assert record.overlap.generation_busy_seconds == pytest.approx(1.5)
    none = split_record(tmp_path / "early", status="failed", trained=3, completed=1)
    assert none.overlap is None


def test_bandwidth_is_that_of_the_devices_that_decode(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=SPLIT, device="cuda", precision="bf16")
    compute = split_record(tmp_path, manifest).compute
    whole = manifest.work.model_copy(update={"replica_rollouts": 12})
    read = decode_bytes(manifest.size, manifest.workload, whole, manifest.layout, "bf16")
    assert compute.mbu == pytest.approx(read / (1.5 * find_device(H100).memory_bytes_per_second))
    assert compute.mfu == pytest.approx(compute.model_flops / (2.0 * compute.peak_flops * 3))
