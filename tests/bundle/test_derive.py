"""What a record says of its events: rates, phases, memory, utilisation, energy, failures and notes."""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.bundle.derive import StillRunning, derive
from suite.bundle.facts import NEWEST_DERIVATION
from suite.bundle.files import DamagedBundle
from suite.bundle.record import text_of
from suite.bundle.store import Bundle
from suite.spec.layout import Layout
from suite.spec.workload import Workload
from suite.stats.intervals import RunSeconds, by_lag_one, rate_interval
from suite.theory.memory import memory_floor
from tests.bundle.recorded import TWO_RANKS, calls_of, numbered, of_kind, ranks_of, record_of, recorded
from tests.bundle.tampering import change
from tests.synthetic import BEGAN, MIB, SHARES, driver_events, facts_of, make_bundle, synthetic_manifest, write_bundle

OOM = {"failure": "oom_device", "phase": "train", "iteration": 3, "evidence": ["CUDA out of memory"]}


def test_the_slowest_rank_sets_each_iterations_time(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS, warmup=1, iterations=3)
    seconds = {0: [9.0, 1.0, 2.0, 1.0], 1: [8.0, 2.0, 1.0, 1.5]}
    path = make_bundle(tmp_path, manifest, lambda iteration, rank: seconds[rank][iteration], details={"train/x": 0.25})
    record = record_of(path)
    assert record.iterations.seconds == (9.0, 2.0, 2.0, 1.5)
    samples = manifest.work.global_rollouts
    assert record.throughput.samples_per_second.value == pytest.approx(3 * samples / 5.5)
    assert record.phases.generate.seconds == pytest.approx(SHARES["generate"] * 5.5 / 3)
    assert record.details == {"train/x": pytest.approx(0.25 * 5.5 / 3)}
    assert (record.steady_state.warmup, record.steady_state.iterations) == (1, 3), "the warm-up is told, not counted"


def test_throughput_is_that_of_the_statistics_on_samples_and_on_all_tokens(tmp_path):
    times = (1.0, 1.0, 1.1, 0.9, 1.05, 1.0, 0.95, 1.02, 0.97, 1.01)
    record = record_of(make_bundle(tmp_path / "ten", synthetic_manifest(layout=TWO_RANKS), seconds=times))
    expected = rate_interval(RunSeconds(8, times[2:]), by_lag_one)
    found = record.throughput
    assert (found.samples_per_second.low, found.samples_per_second.high) == (expected.low, expected.high)
    assert found.tokens_per_second.value == pytest.approx(16 * expected.value)
    assert found.tokens_per_second_per_device.high == pytest.approx(8 * expected.high)
    record = record_of(make_bundle(tmp_path / "one", synthetic_manifest(iterations=1)))
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)
    assert record.throughput.samples_per_second.low is None, "nothing bounds the rate of one iteration"
    assert record.steady_state.verdict is None


def test_phases_and_the_rest_add_up_to_the_iteration_and_each_counts_its_own_tokens(tmp_path):
    record = record_of(make_bundle(tmp_path, seconds=2.0))
    told = {name: getattr(record.phases, name) for name in record.phases.__struct_fields__}
    phases = {name: phase for name, phase in told.items() if phase is not None}
    assert sum(phase.seconds for phase in phases.values()) == pytest.approx(2.0)
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1.0)
    assert phases["other"].seconds == pytest.approx(0.1)
    rates = {"generate": 4 * 8 / 1.0, "score": 4 * 16 / 0.2, "train": 4 * 16 / 0.5, "reward": None, "other": None}
    found = {name: phase.tokens_per_second for name, phase in phases.items()}
    assert found.pop("reference") == found["score"]
    assert found == {name: rate and pytest.approx(rate) for name, rate in rates.items()}
    assert record.details is None, "a backend that tells no parts has none"


def test_a_phase_that_a_backend_does_not_tell_apart_is_null(tmp_path):
    manifest = synthetic_manifest(kind="trainer")
    events = [event for event in ranks_of(manifest)[0] if event.get("phase") != "score"]
    record = recorded(tmp_path, manifest, {0: numbered(events)})
    assert record.phases.score is None
    assert record.phases.other.seconds == pytest.approx(0.15)


def test_an_ok_run_has_no_failure_and_is_derived_alike_twice(tmp_path):
    path = make_bundle(tmp_path, synthetic_manifest(layout=TWO_RANKS), lambda i, r: 1 + 0.01 * math.sin(i))
    record = record_of(path)
    assert (record.status, record.failure, record.notes) == ("ok", None, ())
    assert record.counts.samples == 8 and record.compute.model_flops > 0
    assert (record.compute.mfu, record.energy) == (None, None), "a CPU has work but no utilisation and no energy"
    assert record.run.launcher == "local"
    assert (record.run.started, record.run.ended) == (BEGAN, BEGAN + 60)
    assert text_of(record_of(path)) == text_of(record)


UNEXPLAINED = ("the driver ended as failed; exit codes by rank: [1]", "rank 0 wrote no end")


@pytest.mark.parametrize(
    ("end", "failure", "completed", "status", "kind", "evidence"),
    [
        ("failed", OOM, 5, "failed", "oom_device", ("CUDA out of memory",)),
        ("failed", None, 6, "failed", "unknown", UNEXPLAINED),
        (None, None, 6, "interrupted", "interrupted", None),
        ("interrupted", None, 3, "interrupted", "interrupted", None),
    ],
    ids=["as the driver tells", "unexplained", "the driver was killed", "its user stopped it"],
)
def test_a_run_that_was_cut_short_keeps_what_it_measured_and_why(
    tmp_path, end, failure, completed, status, kind, evidence
):
    record = record_of(make_bundle(tmp_path, status=end, failure=failure, completed=completed))
    assert (record.status, record.failure.kind) == (status, kind)
    assert record.failure.phase == (failure and "train")
    assert evidence in (None, record.failure.evidence)
    assert len(record.iterations.seconds) == completed
    assert record.steady_state.iterations == completed - 2
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)


def test_a_failure_tells_its_iteration_and_an_older_bundles_none_as_it_told_none(tmp_path):
    manifest = synthetic_manifest()
    for rules, iteration in ((1, None), (2, None), (NEWEST_DERIVATION, 3)):
        facts = {**facts_of(manifest), "derivation": rules}
        record = record_of(make_bundle(tmp_path / str(rules), manifest, status="failed", failure=OOM, facts=facts))
        assert (record.failure.kind, record.failure.iteration) == ("oom_device", iteration)


def test_the_first_rank_to_fail_speaks_when_the_driver_does_not(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = ranks_of(manifest, 5.0, completed=4, failure={**OOM, "failure": "rank_lost"})
    ranks[1] = ranks_of(manifest, completed=3, failure=OOM)[1]
    record = recorded(tmp_path, manifest, ranks, "failed")
    assert record.failure.kind == "oom_device"
    assert len(record.iterations.seconds) == 3


def test_an_ok_driver_does_not_outweigh_a_silent_rank(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    record = recorded(tmp_path, manifest, {0: ranks_of(manifest)[0]})
    assert (record.status, record.failure.kind, record.throughput) == ("failed", "unknown", None)
    assert record.failure.evidence == ("rank 1 wrote no end",)


@pytest.mark.parametrize("codes", [{"0": 0, "1": 9}, [0, -11]])
def test_an_ok_end_with_a_bad_exit_code_is_a_failed_run(tmp_path, codes):
    path = make_bundle(tmp_path, synthetic_manifest(layout=TWO_RANKS))
    change(path, lambda event: event["kind"] == "end" and event.update(exit_codes=codes), "driver")
    record = record_of(path)
    assert (record.status, record.failure.kind) == ("failed", "unknown")
    assert "by their exit codes" in record.failure.evidence[0]


def test_a_failure_that_a_rank_told_is_not_undone_by_an_ok_end(tmp_path):
    manifest = synthetic_manifest()
    ranks = ranks_of(manifest, failure=OOM)
    ranks[0][-1]["status"] = "ok"
    record = recorded(tmp_path, manifest, ranks)
    assert (record.status, record.failure.kind) == ("failed", "oom_device")


def test_a_run_that_is_held_is_derived_once_its_driver_wrote_the_end(tmp_path):
    ended, going_on = Bundle(make_bundle(tmp_path / "a")), Bundle(make_bundle(tmp_path / "b", status=None, completed=2))
    with ended.hold(), going_on.hold():
        assert derive(ended).status == "ok"
        with pytest.raises(StillRunning, match="still going on"):
            derive(going_on)


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
    ranks = ranks_of(manifest)
    event = of_kind(ranks[1], "iteration")[4]
    event["counts"] = {**event["counts"], "trained_tokens": 1}
    record = recorded(tmp_path, manifest, ranks)
    assert record.status == "failed"
    assert "trained_tokens is 1 on rank 1 in iteration 4, but 128 on rank 0" in record.failure.evidence[0]
    assert (record.counts, record.throughput, record.compute) == (None, None, None)
    assert "no rate without its work" in record.notes[0]


@pytest.mark.parametrize("name", ["samples", "prompt_tokens", "response_tokens", "trained_tokens", "optimizer_steps"])
def test_an_engine_must_do_the_work_that_was_asked_and_a_trainer_may_do_other(tmp_path, name):
    for kind in ("engine", "trainer"):
        manifest = synthetic_manifest(kind=kind)
        ranks = ranks_of(manifest)
        asked = of_kind(ranks[0], "iteration")[0]["counts"][name]
        for event in of_kind(ranks[0], "iteration"):
            event["counts"] = {**event["counts"], name: asked * 10}
        record = recorded(tmp_path / kind, manifest, ranks)
        assert (record.status, record.throughput is None) == (("failed", True) if kind == "engine" else ("ok", False))
        if kind == "engine":
            told = f"{name} is {asked * 10} per iteration, but the manifest asks for {asked}"
            assert told in record.failure.evidence[0]


@pytest.mark.parametrize(
    ("seconds", "stretched", "told", "note"),
    [(1.0, 3, 1.0, "8 s, but 24 s"), (0.1, 1, 0.5, "0.4 s, but 0.8 s")],
    ids=["more went by", "short iterations are told as half as long"],
)
def test_a_clock_that_does_not_fit_the_time_that_went_by_is_noted(tmp_path, seconds, stretched, told, note):
    manifest = synthetic_manifest()
    ranks = ranks_of(manifest, seconds)
    for event in ranks[0]:
        event["time"] = BEGAN + (event["time"] - BEGAN) * stretched
        if "seconds" in event:
            event["seconds"] *= told
    record = recorded(tmp_path, manifest, ranks)
    assert record.notes == (f"the counted iterations add up to {note} went by between their events on rank 0",)


def test_a_clock_that_went_back_is_noted_and_changes_no_rate(tmp_path):
    manifest = synthetic_manifest()
    ranks, driver = ranks_of(manifest), driver_events(manifest, "ok")
    for event in ranks[0][:2]:
        event["time"] += 50
    driver[-1]["time"] = BEGAN - 10
    record = record_of(write_bundle(tmp_path, manifest, ranks, driver))
    assert record.notes == ("the clock of the driver went back by 10 s", "the clock of rank 0 went back by 50 s")
    assert record.throughput.samples_per_second.value == pytest.approx(4.0)
    ranks = ranks_of(manifest)
    ranks[0][1]["time"] -= 5
    ranks[0][-2]["time"] += 500
    run = record_of(write_bundle(tmp_path / "no driver", manifest, ranks, [])).run
    assert (run.started, run.ended) == (ranks[0][0]["time"], ranks[0][-1]["time"]), "of the first event and the last"


def test_what_ranks_tell_against_the_manifest_and_each_other_is_noted(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    facts = {**facts_of(manifest), "device": {"type": "cuda"}, "packages": {"deepspeed": "9.9"}}
    ranks = ranks_of(manifest, facts=facts)
    ranks[1][0]["suite_version"] = "7"
    record = recorded(tmp_path, manifest, ranks)
    assert record.notes == (
        "the manifest asks for cpu, ranks tell they ran on cuda",
        "the manifest asks for deepspeed 1.0, ranks tell 9.9",
        "ranks ran different versions of the suite: 0, 7",
    )


def test_cpu_memory_is_allocated_memory_against_the_floor(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = {rank: ranks_of(manifest, memory_bytes=(rank + 1) * 100 * MIB)[rank] for rank in range(2)}
    memory = recorded(tmp_path, manifest, ranks).memory
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


def test_gpu_memory_is_reserved_memory_and_retries_are_those_of_counted_iterations(tmp_path):
    manifest = synthetic_manifest(device="cuda", precision="bf16", layout=TWO_RANKS, warmup=2)
    ranks = ranks_of(manifest, memory_bytes=1000 * MIB)
    for events in ranks.values():
        for number, event in enumerate(of_kind(events, "memory")):
            event["allocation_retries"] = 5 + number
    memory = recorded(tmp_path, manifest, ranks).memory
    floor = memory_floor(manifest.size, manifest.workload, manifest.work, manifest.layout, "bf16")
    assert memory.efficiency == floor.bytes / (1064 * MIB)
    assert memory.efficiency_allocated == floor.bytes / (1000 * MIB)
    assert memory.allocation_retries == 2 * 8 * 5, "from the last before the first counted iteration to the last of all"


def test_a_rank_that_knows_no_peak_leaves_it_unknown(tmp_path):
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = ranks_of(manifest)
    for event in of_kind(ranks[1], "memory"):
        event["peak_allocated_bytes"] = None
    memory = recorded(tmp_path, manifest, ranks).memory
    assert (memory.peak_allocated_bytes, memory.efficiency) == (None, None)
    assert memory.peak_resident_bytes is not None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def test_deriving_takes_no_more_calls_than_ranks_have_events(tmp_path):
    """Calls of functions are the same on every machine; seconds are not."""

    def calls(ranks: int) -> int:
        layout = Layout(devices_per_node=ranks, data=ranks)
        bundle = Bundle(make_bundle(tmp_path / str(ranks), synthetic_manifest(layout=layout)))
        derive(bundle)
        return calls_of(lambda: derive(bundle))

    few, more, many = calls(4), calls(8), calls(16)
    assert 0 < many - more < 2.2 * (more - few)


def test_rules_of_a_later_version_are_refused_and_this_versions_worker_asks_for_the_newest(tmp_path):
    manifest = synthetic_manifest()
    path = make_bundle(tmp_path, manifest, facts={**facts_of(manifest), "derivation": NEWEST_DERIVATION + 1})
    with pytest.raises(DamagedBundle, match="this version knows 1 to"):
        record_of(path)
    assert f"DERIVATION = {NEWEST_DERIVATION}\n" in Path("suite/worker/facts.py").read_text()


BUSY = {"disturbed_by": ["1 other process holds 40.0 GiB", "it is 97 % busy"]}


WORDS = "the device of rank 0 was not free before the run: 1 other process holds 40.0 GiB; it is 97 % busy"


def idle_bundle(root, rules, idle):
    manifest = synthetic_manifest()
    return make_bundle(root, manifest, facts={**facts_of(manifest), "derivation": rules, "idle": idle})


@pytest.mark.parametrize(
    ("rules", "idle", "notes"),
    [(2, BUSY, (WORDS,)), (2, None, ()), (2, {"load": 9.0}, ()), (1, BUSY, ())],
    ids=["busy", "not looked at", "free", "of before"],
)
def test_a_device_that_was_not_free_is_noted(tmp_path, rules, idle, notes):
    assert record_of(idle_bundle(tmp_path, rules, idle)).notes == notes


@pytest.mark.parametrize("lines", ["busy", [1], {"a": "b"}])
def test_what_disturbed_a_device_is_a_list_of_texts(tmp_path, lines):
    with pytest.raises(DamagedBundle, match="what disturbed the device"):
        record_of(idle_bundle(tmp_path, 2, {"disturbed_by": lines}))


_TOGETHER = """
import sys, threading
from pathlib import Path
from suite.bundle.derive import derive
from suite.bundle.store import Bundle
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=derive, args=(Bundle(Path(sys.argv[1])),)) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
"""


@pytest.mark.slow
def test_the_first_records_of_a_process_may_be_derived_by_several_threads_at_one_time(tmp_path: Path) -> None:
    """As runs side by side end together. msgspec crashes where threads look at a type at one time."""
    path = make_bundle(tmp_path, synthetic_manifest())
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _TOGETHER, str(path)], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
