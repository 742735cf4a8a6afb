"""Utilisation, energy, and what only bundles have whose worker asks for the rules of derivation 2."""

from pathlib import Path
from typing import Any

import pytest

from suite.bundle.record import Record, as_record, plain
from suite.spec.catalogue import find_device
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.stats.intervals import RunSeconds, by_lag_one, mean_interval, rate_interval
from suite.theory.bandwidth import decode_bytes
from suite.theory.flops import iteration_flops
from tests.bundle import recorded as of_ranks
from tests.bundle.recorded import GPU, TWO_RANKS, Ranks, of_kind, record_of, recorded
from tests.synthetic import SHARES, facts_of, grpo_workload, make_bundle, synthetic_manifest

SECONDS = (9.0, 9.0, 1.0, 1.2, 0.9, 1.1, 1.3, 1.0, 0.8, 1.1)


def ranks_of(manifest: Manifest, rules: int = 2) -> Ranks:
    name = GPU if manifest.measure.device == "cuda" else None
    return of_ranks.ranks_of(manifest, lambda iteration, _: SECONDS[iteration], rules=rules, device_name=name)


def gpu_manifest(ranks: int = 2, **changes: object) -> Manifest:
    layout = Layout(devices_per_node=ranks, data=ranks, **changes)
    return synthetic_manifest(device="cuda", precision="bf16", layout=layout)


def gpu_record(root: Path, manifest: Manifest, **more: Any) -> Record:
    return record_of(make_bundle(root, manifest, **{"facts": facts_of(manifest, GPU), **more}))


def test_an_older_bundle_has_none_of_the_figures_whatever_its_events_hold(tmp_path: Path) -> None:
    manifest = gpu_manifest()
    ranks = ranks_of(manifest, rules=1)
    of_kind(ranks[0], "iteration")[5]["skipped_steps"] = 1
    record = recorded(tmp_path, manifest, ranks)
    assert (record.phase_intervals, record.waits, record.void_iterations) == (None, None, None)
    assert (record.compute.hfu_causal, record.compute.hardware_flops_causal) == (None, None)
    assert (record.steady_state.iterations, record.notes) == (8, ())


def test_a_phase_has_the_interval_of_its_own_iterations(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    record = recorded(tmp_path, manifest, ranks_of(manifest))
    train = record.phase_intervals["train"]
    expected = mean_interval([SHARES["train"] * seconds for seconds in SECONDS[2:]], by_lag_one)
    assert (train.value, train.low, train.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert train.value == pytest.approx(record.phases.train.seconds)
    reward = record.phase_intervals["reward"]
    assert (reward.value, reward.low, reward.high) == (0.0, None, None), "no time was taken, so nothing bounds it"
    assert "other" in record.phase_intervals
    assert record.waits is None, "one rank waits for nobody"


def test_waits_are_of_the_longest_waiting_rank_and_of_all_ranks_in_counted_iterations(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=TWO_RANKS, warmup=1, iterations=2)
    ranks = ranks_of(manifest)
    for rank, seconds in ((0, (9.0, 0.3, 0.0)), (1, (9.0, 0.0, 0.1))):
        for event in of_kind(ranks[rank], "phase"):
            if event["phase"] == "train":
                event["wait_seconds"] = seconds[event["iteration"]]
    waits = recorded(tmp_path, manifest, ranks).waits
    assert waits["train"].longest_seconds == pytest.approx((0.3 + 0.1) / 2)
    assert waits["train"].mean_seconds == pytest.approx((0.3 + 0.1) / 4)
    assert waits["generate"].longest_seconds == 0


def test_an_iteration_with_a_skipped_step_on_any_rank_counts_nowhere(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = ranks_of(manifest)
    first, second = (of_kind(ranks[rank], "iteration") for rank in (0, 1))
    for event in (*first, *second):
        event["skipped_steps"] = 0
    first[0]["skipped_steps"], first[4]["skipped_steps"] = 5, 2
    second[4]["skipped_steps"] = second[9]["skipped_steps"] = 1
    for event in of_kind(ranks[0], "memory"):
        if event["iteration"] == 4:
            event["peak_allocated_bytes"] = 1 << 40
    record = recorded(tmp_path, manifest, ranks)
    left = (1.0, 1.2, 1.1, 1.3, 1.0, 0.8)
    assert record.void_iterations == (4, 9)
    assert (record.steady_state.iterations, len(record.iterations.seconds)) == (6, 10)
    expected, found = rate_interval(RunSeconds(8, left), by_lag_one), record.throughput.samples_per_second
    assert (found.value, found.low) == (expected.value, expected.low)
    assert record.phases.train.seconds == pytest.approx(SHARES["train"] * sum(left) / 6)
    assert record.memory.peak_allocated_bytes == 512 << 20
    assert record.notes == (
        "2 of 8 iterations after the warm-up skipped 3 optimizer steps (overflow at the loss scale) and do not count",
    )


def test_a_run_of_void_iterations_has_no_rate_and_says_why(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    ranks = ranks_of(manifest)
    for event in of_kind(ranks[0], "iteration"):
        event["skipped_steps"] = 1
    record = recorded(tmp_path, manifest, ranks)
    assert (record.status, record.steady_state.iterations) == ("ok", 0)
    assert (record.throughput, record.phases) == (None, None)
    assert record.void_iterations == tuple(range(2, 10))
    assert "so there is no rate" in record.notes[0]


def test_without_skipped_steps_nothing_is_void_and_untold_ones_are_unknown(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    record = recorded(tmp_path / "untold", manifest, ranks_of(manifest))
    assert record.void_iterations is None
    ranks = ranks_of(manifest)
    of_kind(ranks[0], "iteration")[3]["skipped_steps"] = 0
    assert recorded(tmp_path / "told", manifest, ranks).void_iterations == ()
    body = plain(record)
    for void in ((0,), (10,), (3, 3)):
        steady = {**body["steady_state"], "iterations": body["steady_state"]["iterations"] - len(void)}
        with pytest.raises(ValueError, match="void iterations are not among"):
            as_record({**body, "steady_state": steady, "void_iterations": void})


def test_hfu_is_given_with_full_and_with_causal_attention(tmp_path: Path) -> None:
    manifest = gpu_manifest(recompute="full")
    compute = recorded(tmp_path, manifest, ranks_of(manifest)).compute
    samples = manifest.work.global_rollouts
    causal = iteration_flops(manifest.size, manifest.workload, samples, recompute=True, attention="causal")
    assert compute.hardware_flops_causal == causal.hardware
    assert compute.hfu_causal / compute.hfu == pytest.approx(causal.hardware / compute.hardware_flops)
    assert compute.hfu_causal < compute.hfu


def with_counters(manifest, skipped=None, missing=None, step=1.0, rules=2) -> Ranks:
    """Each iteration uses 100 J, and 7 J pass before the next one begins."""
    ranks = ranks_of(manifest, rules)
    for rank, events in ranks.items():
        for event in of_kind(events, "iteration"):
            begin = 1e6 + step * 107.0 * event["iteration"]
            event["device"] = {"energy_joules": 99.0, "samples": 9, "energy_counter_begin_joules": begin}
            event["device"]["energy_counter_end_joules"] = begin + 100.0
            if rank == 1 and missing and event["iteration"] == missing[0]:
                event["device"][f"energy_counter_{missing[1]}_joules"] = None
            if event["iteration"] == skipped:
                event["skipped_steps"] = 1
    return ranks


@pytest.mark.parametrize(
    ("told", "iterations", "joules"),
    [
        ({}, 8, 2 * (8 * 107 - 7)),
        ({"skipped": 4}, 7, 2 * (2 * 107 - 7 + 5 * 107 - 7)),
        ({"missing": (5, "end")}, 8, 2 * (8 * 107 - 7)),
        ({"rules": 1}, 8, 2 * 8 * 99.0),
    ],
    ids=["one stretch", "two beside a void iteration", "readings within a stretch do not matter", "an older bundle"],
)
def test_energy_telescopes_over_each_stretch_of_counted_iterations(tmp_path, told, iterations, joules):
    manifest = gpu_manifest()
    energy = recorded(tmp_path, manifest, with_counters(manifest, **told)).energy
    assert energy and energy.joules == pytest.approx(joules)
    assert energy.joules_per_sample == pytest.approx(joules / (iterations * manifest.work.global_rollouts))


@pytest.mark.parametrize(
    ("told", "says"), [({"missing": (2, "begin")}, "1 of 4 readings"), ({"step": -1.0}, "an energy counter went back")]
)
def test_a_counter_without_its_ends_gives_no_energy(tmp_path: Path, told: dict, says: str) -> None:
    manifest = gpu_manifest()
    energy = recorded(tmp_path, manifest, with_counters(manifest, **told)).energy
    assert energy and energy.joules is None and not energy.valid
    assert any(says in reason for reason in energy.reasons)


def test_utilisation_is_work_over_time_peak_and_ranks(tmp_path):
    manifest, device = gpu_manifest(), find_device(GPU)
    work = iteration_flops(manifest.size, manifest.workload, manifest.work.global_rollouts)
    compute = gpu_record(tmp_path / "plain", manifest, seconds=2.0).compute
    assert compute.peak_flops == device.peak_flops["bf16"]
    assert compute.mfu == pytest.approx(work.model / (2.0 * device.peak_flops["bf16"] * 2))
    read = decode_bytes(manifest.size, manifest.workload, manifest.work, manifest.layout, "bf16")
    assert compute.mbu == pytest.approx(read / (1.0 * device.memory_bytes_per_second))
    values = iteration_flops(manifest.size, manifest.workload, manifest.work.global_rollouts, unscored=True).score
    compute = gpu_record(tmp_path / "unscored", manifest, facts={**facts_of(manifest, GPU), "unscored": True}).compute
    assert compute.model_flops == work.model - work.score + values
    compute = gpu_record(tmp_path / "again", gpu_manifest(1, recompute="full")).compute
    assert compute.hardware_flops > compute.model_flops, "recomputed work counts for HFU alone"
    assert compute.hfu / compute.mfu == pytest.approx(compute.hardware_flops / compute.model_flops)


@pytest.mark.parametrize(("rules", "sharing"), [(3, None), (4, 8)])
def test_vllm_computes_a_groups_prompt_once(tmp_path: Path, rules: int, sharing: int | None) -> None:
    layout = Layout(devices_per_node=1, data=1, generation="vllm")
    manifest = synthetic_manifest(workload=grpo_workload(), layout=layout)
    work = iteration_flops(manifest.size, manifest.workload, 8, lengths=manifest.work.lengths, sharing=sharing)
    assert recorded(tmp_path, manifest, ranks_of(manifest, rules)).compute.model_flops == work.model


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("NVIDIA Imaginary 9000",) * 2, "'NVIDIA Imaginary 9000' is not in the catalogue"),
        ((GPU, "NVIDIA H100 80GB HBM3"), "different devices"),
    ],
)
def test_unknown_devices_and_different_ones_have_no_peak_and_the_record_says_so(tmp_path, names, note):
    manifest = gpu_manifest()
    ranks = {rank: of_ranks.ranks_of(manifest, device_name=name)[rank] for rank, name in enumerate(names)}
    record = recorded(tmp_path, manifest, ranks)
    assert (record.compute.mfu, record.compute.hfu, record.compute.mbu, record.compute.peak_flops) == (None,) * 4
    assert record.compute.model_flops > 0
    assert note in record.notes[0]


def test_energy_is_summed_over_ranks_and_counted_iterations(tmp_path):
    window = {"energy_joules": 100.0, "samples": 20, "throttle_reasons": ["sw_power_cap"]}
    record = gpu_record(tmp_path, gpu_manifest(), seconds=2.0, device=window)
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
    energy = gpu_record(tmp_path, gpu_manifest(), seconds=seconds, device=window).energy
    assert not energy.valid
    assert says in energy.reasons[0]
