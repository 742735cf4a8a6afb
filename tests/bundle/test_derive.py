from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.bundle.derive import StillRunning, derive
from suite.bundle.facts import NEWEST_DERIVATION
from suite.bundle.files import DamagedBundle
from suite.bundle.store import Bundle
from suite.spec.catalogue import find_device
from suite.spec.layout import Layout
from suite.spec.workload import Workload
from suite.stats.intervals import RunSeconds, by_lag_one, rate_interval
from suite.theory.bandwidth import decode_bytes
from suite.theory.flops import iteration_flops
from suite.theory.memory import memory_floor
from tests.synthetic import (
    BEGAN,
    MIB,
    SHARES,
    driver_events,
    facts_of,
    make_bundle,
    rank_events,
    synthetic_manifest,
    write_bundle,
)
from tests.timing import within

TWO_RANKS = Layout(devices_per_node=2, data=2)
GPU = "NVIDIA A100-SXM4-80GB"
OOM = {"failure": "oom_device", "phase": "train", "iteration": 3, "evidence": ["CUDA out of memory"]}


def record_of(path):
    return derive(Bundle(path))


def cuda_bundle(tmp_path, layout=TWO_RANKS, name=GPU, **more):
    manifest = synthetic_manifest(device="cuda", precision="bf16", layout=layout)
    return manifest, make_bundle(tmp_path, manifest, facts=facts_of(manifest, name), **more)


def test_the_slowest_rank_sets_each_iterations_time(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS, warmup=1, iterations=3)
    seconds = {0: [9.0, 1.0, 2.0, 1.0], 1: [8.0, 2.0, 1.0, 1.5]}
    record = record_of(make_bundle(tmp_path, manifest, seconds=lambda iteration, rank: seconds[rank][iteration]))
    assert record.iterations.seconds == (9.0, 2.0, 2.0, 1.5)
    samples = manifest.work.global_rollouts
    assert record.throughput.samples_per_second.value == pytest.approx(3 * samples / 5.5)
    assert record.phases.generate.seconds == pytest.approx(SHARES["generate"] * 5.5 / 3)


def test_the_warm_up_is_recorded_and_never_counted(tmp_path):
    record = record_of(make_bundle(tmp_path, synthetic_manifest(warmup=2, iterations=5), seconds=[100, 50, 1]))
    assert record.iterations.seconds[:3] == (100.0, 50.0, 1.0)
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)
    assert (record.steady_state.warmup, record.steady_state.iterations) == (2, 5)
    assert record.steady_state.verdict == "steady"


def test_throughput_is_that_of_the_statistics_on_samples_and_on_all_tokens(tmp_path):
    times = (1.0, 1.0, 1.1, 0.9, 1.05, 1.0, 0.95, 1.02, 0.97, 1.01)
    record = record_of(make_bundle(tmp_path, synthetic_manifest(layout=TWO_RANKS), seconds=times))
    expected = rate_interval(RunSeconds(8, times[2:]), by_lag_one)
    found = record.throughput
    assert (found.samples_per_second.low, found.samples_per_second.high) == (expected.low, expected.high)
    assert found.tokens_per_second.value == pytest.approx(16 * expected.value)
    assert found.tokens_per_second_per_device.high == pytest.approx(8 * expected.high)


def test_a_single_counted_iteration_has_a_rate_without_bounds(tmp_path):
    record = record_of(make_bundle(tmp_path, synthetic_manifest(iterations=1)))
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)
    assert record.throughput.samples_per_second.low is None
    assert record.steady_state.verdict is None


def test_phases_and_the_rest_add_up_to_the_iteration(tmp_path):
    record = record_of(make_bundle(tmp_path, seconds=2.0))
    told = {name: getattr(record.phases, name) for name in type(record.phases).model_fields}
    phases = {name: phase for name, phase in told.items() if phase is not None}
    assert list(phases) == ["generate", "score", "reference", "reward", "train", "other"]
    assert sum(phase.seconds for phase in phases.values()) == pytest.approx(2.0)
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1.0)
    assert phases["other"].seconds == pytest.approx(0.1)


def test_each_phase_counts_its_own_tokens(tmp_path):
    phases = record_of(make_bundle(tmp_path, seconds=1.0)).phases
    assert phases.generate.tokens_per_second == pytest.approx(4 * 8 / 0.5)
    assert phases.score.tokens_per_second == pytest.approx(4 * 16 / 0.1)
    assert phases.train.tokens_per_second == pytest.approx(4 * 16 / 0.25)
    assert phases.reward.tokens_per_second is None
    assert phases.other.tokens_per_second is None


def test_a_phase_that_a_backend_does_not_tell_apart_is_null(tmp_path):
    manifest = synthetic_manifest(kind="trainer")
    events = [event for event in rank_events(manifest, 0, lambda i, r: 1.0) if event.get("phase") != "score"]
    events = [{**event, "seq": seq} for seq, event in enumerate(events)]
    record = record_of(write_bundle(tmp_path, manifest, {0: events}, driver_events(manifest, "ok")))
    assert record.phases.score is None
    assert record.phases.other.seconds == pytest.approx(0.15)


def test_an_ok_run_has_no_failure(tmp_path):
    record = record_of(make_bundle(tmp_path, synthetic_manifest(layout=TWO_RANKS)))
    assert (record.status, record.failure, record.notes) == ("ok", None, ())
    assert record.counts.samples == 8
    assert record.run.launcher == "local"
    assert (record.run.started, record.run.ended) == (BEGAN, BEGAN + 60)


def test_a_failed_run_keeps_what_it_measured_and_the_drivers_reason(tmp_path):
    record = record_of(make_bundle(tmp_path, status="failed", failure=OOM, completed=5))
    assert record.status == "failed"
    assert (record.failure.kind, record.failure.phase) == ("oom_device", "train")
    assert record.failure.evidence == ("CUDA out of memory",)
    assert len(record.iterations.seconds) == 5
    assert record.throughput is not None


def test_a_failure_tells_its_iteration_and_an_older_bundles_none_as_it_told_none(tmp_path):
    manifest = synthetic_manifest()
    for rules, iteration in ((1, None), (2, None), (NEWEST_DERIVATION, 3)):
        facts = {**facts_of(manifest), "derivation": rules}
        record = record_of(make_bundle(tmp_path / str(rules), manifest, status="failed", failure=OOM, facts=facts))
        assert (record.failure.kind, record.failure.iteration) == ("oom_device", iteration)


def test_the_first_rank_to_fail_speaks_when_the_driver_does_not(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    late = {**OOM, "failure": "rank_lost"}
    ranks = {
        0: rank_events(manifest, 0, lambda i, r: 5.0, completed=4, failure=late),
        1: rank_events(manifest, 1, lambda i, r: 1.0, completed=3, failure=OOM),
    }
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "failed")))
    assert record.failure.kind == "oom_device"
    assert len(record.iterations.seconds) == 3


def test_a_failure_that_nobody_explains_is_unknown_with_what_was_seen(tmp_path):
    record = record_of(make_bundle(tmp_path, status="failed", completed=1))
    assert record.failure.kind == "unknown"
    assert record.failure.evidence == ("the driver ended as failed; exit codes by rank: [1]", "rank 0 wrote no end")


def test_an_ok_driver_does_not_outweigh_a_silent_rank(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = {0: rank_events(manifest, 0, lambda i, r: 1.0)}
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok")))
    assert (record.status, record.failure.kind) == ("failed", "unknown")
    assert record.failure.evidence == ("rank 1 wrote no end",)
    assert record.throughput is None


def test_a_killed_driver_makes_an_interrupted_run_with_its_iterations(tmp_path):
    record = record_of(make_bundle(tmp_path, status=None, completed=6))
    assert record.status == "interrupted"
    assert record.failure.kind == "interrupted"
    assert len(record.iterations.seconds) == 6
    assert record.steady_state.iterations == 4
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)


def test_a_user_who_stops_a_run_interrupts_it(tmp_path):
    assert record_of(make_bundle(tmp_path, status="interrupted", completed=2)).status == "interrupted"


def test_a_run_that_is_held_and_has_no_end_is_not_derived(tmp_path):
    bundle = Bundle(make_bundle(tmp_path, status=None, completed=2))
    with bundle.hold(), pytest.raises(StillRunning, match="still going on"):
        derive(bundle)


def test_a_run_whose_driver_wrote_its_end_is_derived_while_it_is_held(tmp_path):
    bundle = Bundle(make_bundle(tmp_path))
    with bundle.hold():
        assert derive(bundle).status == "ok"


@pytest.mark.parametrize("completed", [0, 1, 2])
def test_a_run_that_never_left_its_warm_up_has_no_rate(tmp_path, completed):
    record = record_of(make_bundle(tmp_path, status="failed", completed=completed, failure=OOM))
    assert (record.throughput, record.phases) == (None, None)
    assert record.memory.peak_allocated_bytes is None
    assert record.memory.by_phase["setup"].peak_allocated_bytes == 256 * MIB
    assert record.memory.theoretical_minimum_bytes > 0
    assert (record.counts is None) == (completed == 0)


def test_a_run_that_never_started_is_a_record_too(tmp_path):
    manifest = synthetic_manifest()
    record = record_of(write_bundle(tmp_path, manifest, {}, []))
    assert (record.status, record.run.launcher, record.run.started) == ("interrupted", None, None)
    assert record.environment.worker is None


def test_ranks_that_count_differently_make_a_failed_run_that_says_where(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = {rank: rank_events(manifest, rank, lambda i, r: 1.0) for rank in range(2)}
    event = next(event for event in ranks[1] if event["kind"] == "iteration" and event["iteration"] == 4)
    event["counts"] = {**event["counts"], "trained_tokens": 1}
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok")))
    assert record.status == "failed"
    assert "trained_tokens is 1 on rank 1 in iteration 4, but 128 on rank 0" in record.failure.evidence[0]
    assert (record.counts, record.throughput, record.compute) == (None, None, None)
    assert "no rate without its work" in record.notes[0]


@pytest.mark.parametrize(("kind", "status"), [("engine", "failed"), ("trainer", "ok")])
def test_an_engine_must_do_the_work_that_was_asked(tmp_path, kind, status):
    manifest = synthetic_manifest(kind=kind)
    events = rank_events(manifest, 0, lambda i, r: 1.0)
    for event in events:
        if event["kind"] == "iteration":
            event["counts"] = {**event["counts"], "response_tokens": 16}
    record = record_of(write_bundle(tmp_path, manifest, {0: events}, driver_events(manifest, "ok")))
    assert record.status == status
    if kind == "engine":
        assert "response_tokens is 16 per iteration, but the manifest asks for 32" in record.failure.evidence[0]


def test_a_clock_that_does_not_fit_the_time_that_went_by_is_noted(tmp_path):
    manifest = synthetic_manifest()
    events = rank_events(manifest, 0, lambda i, r: 1.0)
    for event in events:
        event["time"] = BEGAN + (event["time"] - BEGAN) * 3
    record = record_of(write_bundle(tmp_path, manifest, {0: events}, driver_events(manifest, "ok")))
    assert record.notes == ("the counted iterations add up to 8 s, but 24 s went by between their events on rank 0",)


def test_short_iterations_told_as_half_as_long_are_noted(tmp_path):
    manifest = synthetic_manifest()
    events = rank_events(manifest, 0, lambda i, r: 0.1)
    for event in events:
        if "seconds" in event:
            event["seconds"] /= 2
    record = record_of(write_bundle(tmp_path, manifest, {0: events}, driver_events(manifest, "ok")))
    assert record.notes == ("the counted iterations add up to 0.4 s, but 0.8 s went by between their events on rank 0",)


def test_a_clock_that_went_back_is_noted_and_changes_no_rate(tmp_path):
    manifest = synthetic_manifest()
    events, driver = rank_events(manifest, 0, lambda i, r: 1.0), driver_events(manifest, "ok")
    for event in events[:2]:
        event["time"] += 50
    driver[-1]["time"] = BEGAN - 10
    record = record_of(write_bundle(tmp_path, manifest, {0: events}, driver))
    assert record.notes == ("the clock of the driver went back by 10 s", "the clock of rank 0 went back by 50 s")
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)


def test_cpu_memory_is_allocated_memory_against_the_floor(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = {
        rank: rank_events(manifest, rank, lambda i, r: 1.0, memory_bytes=(rank + 1) * 100 * MIB) for rank in range(2)
    }
    memory = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok"))).memory
    floor = memory_floor(manifest.size, manifest.workload, manifest.work, manifest.layout, "fp32")
    assert memory.peak_allocated_bytes == 200 * MIB
    assert memory.min_over_ranks.peak_allocated_bytes == 100 * MIB
    assert (memory.peak_reserved_bytes, memory.peak_device_bytes) == (None, None)
    assert memory.theoretical_minimum_bytes == memory.floor.bytes == floor.bytes
    assert memory.efficiency == memory.efficiency_allocated == floor.bytes / (200 * MIB)
    assert memory.resident_baseline_bytes == 100 * MIB
    assert memory.by_phase["train"].peak_resident_bytes == 300 * MIB


def test_a_bundle_keeps_the_floor_of_the_rules_that_its_ranks_wrote(tmp_path):
    workload = Workload(name="long", prompt_tokens=56, new_tokens=8, rollouts=64, micro_batch=1)
    manifest = synthetic_manifest(workload=workload)
    found = {}
    for name, facts in (("old", {}), ("new", {"derivation": NEWEST_DERIVATION})):
        path = make_bundle(tmp_path / name, manifest, facts={**facts_of(manifest), **facts})
        found[name] = record_of(path).memory.floor.bytes
    asked = (manifest.size, manifest.workload, manifest.work, manifest.layout, manifest.measure.precision)
    assert found == {"old": memory_floor(*asked, rules=1).bytes, "new": memory_floor(*asked).bytes}
    assert found["old"] < found["new"]


def test_gpu_memory_is_reserved_memory_against_the_floor(tmp_path):
    manifest, path = cuda_bundle(tmp_path, memory_bytes=1000 * MIB)
    memory = record_of(path).memory
    floor = memory_floor(manifest.size, manifest.workload, manifest.work, manifest.layout, "bf16")
    assert memory.efficiency == floor.bytes / (1064 * MIB)
    assert memory.efficiency_allocated == floor.bytes / (1000 * MIB)
    assert memory.allocation_retries == 0


def test_allocation_retries_are_those_of_the_counted_iterations(tmp_path):
    manifest = synthetic_manifest(device="cuda", precision="bf16", layout=TWO_RANKS, warmup=2)
    ranks = {rank: rank_events(manifest, rank, lambda i, r: 1.0) for rank in range(2)}
    for events in ranks.values():
        for event in events:
            if event["kind"] == "memory":
                event["allocation_retries"] = 5 + (event["iteration"] or 0)
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok")))
    assert record.memory.allocation_retries == 2 * (9 - 1)


def test_a_rank_that_knows_no_peak_leaves_it_unknown(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = {rank: rank_events(manifest, rank, lambda i, r: 1.0) for rank in range(2)}
    for event in ranks[1]:
        if event["kind"] == "memory":
            event["peak_allocated_bytes"] = None
    memory = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok"))).memory
    assert memory.peak_allocated_bytes is None
    assert memory.efficiency is None
    assert memory.peak_resident_bytes is not None


def test_utilisation_is_work_over_time_peak_and_ranks(tmp_path):
    manifest, path = cuda_bundle(tmp_path, seconds=2.0)
    device = find_device(GPU)
    assert device is not None
    work = iteration_flops(manifest.size, manifest.workload, manifest.work.global_rollouts)
    record = record_of(path)
    assert record.compute.peak_flops == device.peak_flops["bf16"]
    assert record.compute.mfu == pytest.approx(work.model / (2.0 * device.peak_flops["bf16"] * 2))
    read = decode_bytes(manifest.size, manifest.workload, manifest.work, manifest.layout, "bf16")
    assert record.compute.mbu == pytest.approx(read / (1.0 * device.memory_bytes_per_second))


def test_recomputed_work_counts_for_hfu_alone(tmp_path):
    _, path = cuda_bundle(tmp_path, layout=Layout(devices_per_node=1, data=1, recompute="full"))
    compute = record_of(path).compute
    assert compute.hardware_flops > compute.model_flops
    assert compute.hfu / compute.mfu == pytest.approx(compute.hardware_flops / compute.model_flops)


def test_an_unknown_device_has_no_peak_and_the_record_says_so(tmp_path):
    _, path = cuda_bundle(tmp_path, name="NVIDIA Imaginary 9000")
    record = record_of(path)
    assert (record.compute.mfu, record.compute.hfu, record.compute.mbu, record.compute.peak_flops) == (None,) * 4
    assert record.compute.model_flops > 0
    assert "'NVIDIA Imaginary 9000' is not in the catalogue" in record.notes[0]


def test_ranks_on_different_devices_have_no_one_peak(tmp_path):
    manifest = synthetic_manifest(device="cuda", precision="bf16", layout=TWO_RANKS)
    names = (GPU, "NVIDIA H100 80GB HBM3")
    ranks = {
        rank: rank_events(manifest, rank, lambda i, r: 1.0, facts=facts_of(manifest, name))
        for rank, name in enumerate(names)
    }
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok")))
    assert record.compute.mfu is None
    assert "different devices" in record.notes[0]


def test_a_cpu_has_work_but_no_utilisation_and_no_energy(tmp_path):
    record = record_of(make_bundle(tmp_path))
    assert record.compute.model_flops > 0
    assert record.compute.mfu is None
    assert record.energy is None


def test_energy_is_summed_over_ranks_and_counted_iterations(tmp_path):
    window = {"energy_joules": 100.0, "samples": 20, "throttle_reasons": ["sw_power_cap"]}
    _, path = cuda_bundle(tmp_path, seconds=2.0, device=window)
    record = record_of(path)
    assert record.energy.joules == pytest.approx(2 * 8 * 100.0)
    assert record.energy.joules_per_sample == pytest.approx(2 * 8 * 100.0 / (8 * 8))
    assert (record.energy.valid, record.energy.reasons) == (True, ())
    assert record.notes == ("clocks were held back by: sw_power_cap",)


@pytest.mark.parametrize(
    ("window", "seconds", "says"),
    [
        ({"energy_joules": 1.0, "samples": 5}, 1.0, "less than 10 s"),
        ({"energy_joules": None, "samples": 5}, 2.0, "tell no energy"),
        ({"energy_joules": 1.0, "samples": 0}, 2.0, "not sampled"),
    ],
)
def test_energy_that_cannot_be_trusted_says_why(tmp_path, window, seconds, says):
    _, path = cuda_bundle(tmp_path, seconds=seconds, device=window)
    energy = record_of(path).energy
    assert not energy.valid
    assert says in energy.reasons[0]


def test_deriving_twice_gives_the_same_bytes(tmp_path):
    bundle = Bundle(make_bundle(tmp_path, seconds=lambda i, r: 1 + 0.01 * math.sin(i)))
    assert derive(bundle).model_dump_json(by_alias=True) == derive(bundle).model_dump_json(by_alias=True)


def test_a_record_names_its_fields_as_the_contract_does(tmp_path):
    body = json.loads(record_of(make_bundle(tmp_path)).model_dump_json(by_alias=True))
    assert list(body) == [
        "schema", "run", "status", "failure", "counts", "throughput", "phases", "details",
        "phase_intervals", "waits", "void_iterations", "algorithm", "lengths", "padding", "rollout", "staleness",
        "overlap", "memory", "compute", "energy", "steady_state", "iterations", "environment", "noise", "validity",
        "predicted", "notes", "evidence",
    ]  # fmt: skip
    contract = {
        "run": "id plan backend backend_kind size ranks layout strategy launcher repeat started ended workload scaling "
        "track manifest_hash work_hash",
        "throughput": "samples_per_second tokens_per_second tokens_per_second_per_device",
        "phases": "generate score reference reward train other",
        "memory": "peak_allocated_bytes peak_reserved_bytes peak_device_bytes peak_resident_bytes "
        "resident_baseline_bytes theoretical_minimum_bytes efficiency efficiency_allocated by_phase min_over_ranks "
        "allocation_retries floor",
        "compute": "model_flops hardware_flops mfu hfu mbu peak_flops convention hardware_flops_causal hfu_causal",
        "steady_state": "verdict warmup iterations reasons test",
        "iterations": "seconds",
    }
    for part, fields in contract.items():
        assert set(fields.split()) <= set(body[part])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4), min_size=1, max_size=3))
def test_any_times_give_rates_of_the_slowest_rank(tmp_path, times):
    ranks = len(times)
    manifest = synthetic_manifest(layout=Layout(devices_per_node=ranks, data=ranks), warmup=1, iterations=3)
    path = make_bundle(tmp_path, manifest, seconds=lambda iteration, rank: times[rank][iteration])
    record = record_of(path)
    shutil.rmtree(path)
    slowest = [max(rank[iteration] for rank in times) for iteration in range(4)]
    assert record.iterations.seconds == tuple(slowest)
    assert record.throughput.samples_per_second.value == pytest.approx(12 * ranks / sum(slowest[1:]))
    assert record.phases.other.seconds >= 0


@pytest.mark.alone
def test_ten_thousand_events_of_thirty_two_ranks_are_derived_within_two_seconds(tmp_path):
    manifest = synthetic_manifest(layout=Layout(devices_per_node=32, data=32), iterations=26)
    bundle = Bundle(make_bundle(tmp_path, manifest))
    assert within(2.0, lambda: derive(bundle))
    assert derive(bundle).status == "ok"


def test_parts_are_of_the_slowest_rank_and_of_counted_iterations_alone(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS, warmup=1, iterations=2)
    seconds = {0: [9.0, 1.0, 2.0], 1: [8.0, 3.0, 1.0]}
    path = make_bundle(
        tmp_path, manifest, lambda iteration, rank: seconds[rank][iteration], details={"train/forward": 0.25}
    )
    assert record_of(path).details == {"train/forward": pytest.approx(0.25 * (3.0 + 2.0) / 2)}


def test_a_backend_that_tells_no_parts_has_none(tmp_path):
    assert record_of(make_bundle(tmp_path)).details is None


@pytest.mark.parametrize("codes", [{"0": 0, "1": 9}, [0, -11]])
def test_an_ok_end_with_a_bad_exit_code_is_a_failed_run(tmp_path, codes):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    driver = driver_events(manifest, "ok")
    driver[-1]["exit_codes"] = codes
    ranks = {rank: rank_events(manifest, rank, lambda i, r: 1.0) for rank in range(2)}
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver))
    assert (record.status, record.failure.kind) == ("failed", "unknown")
    assert "by their exit codes" in record.failure.evidence[0]


def test_a_failure_that_a_rank_told_is_not_undone_by_an_ok_end(tmp_path):
    manifest = synthetic_manifest()
    events = rank_events(manifest, 0, lambda i, r: 1.0, failure=OOM)
    events[-1]["status"] = "ok"
    record = record_of(write_bundle(tmp_path, manifest, {0: events}, driver_events(manifest, "ok")))
    assert (record.status, record.failure.kind) == ("failed", "oom_device")


def test_what_ranks_tell_against_the_manifest_and_each_other_is_noted(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    facts = {**facts_of(manifest), "device": {"type": "cuda"}, "packages": {"deepspeed": "9.9"}}
    ranks = {rank: rank_events(manifest, rank, lambda i, r: 1.0, facts=facts) for rank in range(2)}
    ranks[1][0]["suite_version"] = "7"
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok")))
    assert record.notes == (
        "the manifest asks for cpu, ranks tell they ran on cuda",
        "the manifest asks for deepspeed 1.0, ranks tell 9.9",
        "ranks ran different versions of the suite: 0, 7",
    )


def test_rules_of_a_later_version_are_refused(tmp_path):
    manifest = synthetic_manifest()
    path = make_bundle(tmp_path, manifest, facts={**facts_of(manifest), "derivation": NEWEST_DERIVATION + 1})
    with pytest.raises(DamagedBundle, match="this version knows 1 to"):
        derive(Bundle(path))


def test_this_versions_worker_asks_for_the_newest_rules():
    text = Path("suite/worker/facts.py").read_text()
    assert f"DERIVATION = {NEWEST_DERIVATION}\n" in text


BUSY = {"disturbed_by": ["1 other process holds 40.0 GiB", "it is 97 % busy"]}


def test_a_device_that_was_not_free_is_noted_for_each_rank(tmp_path):
    manifest = synthetic_manifest()
    path = make_bundle(tmp_path, manifest, facts={**facts_of(manifest), "derivation": 2, "idle": BUSY})
    words = "the device of rank 0 was not free before the run: 1 other process holds 40.0 GiB; it is 97 % busy"
    assert words in record_of(path).notes


@pytest.mark.parametrize(
    "facts", [{"derivation": 2, "idle": None}, {"derivation": 2, "idle": {"load": 9.0}}, {"idle": BUSY}]
)
def test_a_free_device_and_bundles_of_before_have_no_such_note(tmp_path, facts):
    manifest = synthetic_manifest()
    path = make_bundle(tmp_path, manifest, facts={**facts_of(manifest), **facts})
    assert not any("was not free" in note for note in record_of(path).notes)


@pytest.mark.parametrize("lines", ["busy", [1], {"a": "b"}])
def test_what_disturbed_a_device_is_a_list_of_texts(tmp_path, lines):
    manifest = synthetic_manifest()
    facts = {**facts_of(manifest), "derivation": 2, "idle": {"disturbed_by": lines}}
    with pytest.raises(DamagedBundle, match="what disturbed the device"):
        derive(Bundle(make_bundle(tmp_path, manifest, facts=facts)))
