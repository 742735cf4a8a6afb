"""Noise of a run, summed up and judged: each rule with what it must and must not say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.spec.catalogue import find_device, find_size
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.theory.flops import iteration_flops
from tests.bundle.recorded import GPU, TWO_RANKS, Ranks, of_kind, ranks_of, recorded
from tests.synthetic import GPT, SHARES, driver_events, synthetic_manifest, write_bundle

#: Changes the noise of one rank's iteration.
Change = Callable[[dict[str, Any]], object]


def quiet(rank: int, seconds: float) -> dict[str, Any]:
    """What a rank tells of an iteration that nothing disturbs, on two CPUs."""
    noise: dict[str, Any] = {
        "seconds": 1.001 * seconds,
        "cpu_seconds": 0.99 * seconds,
        "thread_cpu_seconds": 0.98 * seconds,
        "cpu_wait_seconds": 0.001 * seconds,
        "involuntary_switches": 3,
        "major_faults": 0,
    }
    if rank == 0:
        noise["host"] = {
            "cpus": 2,
            "busy_seconds": 1.02 * seconds,
            "steal_seconds": 0.001 * seconds,
            "cpu_pressure_seconds": 0.02 * seconds,
            "memory_pressure_seconds": 0.0,
        }
    return noise


def noisy_ranks(manifest: Manifest, change: Change | None = None, rules: int = 3, device: Any = None) -> Ranks:
    """``change``: of the noise of every rank and counted iteration."""
    name = GPU if manifest.measure.device == "cuda" else None
    ranks = ranks_of(manifest, rules=rules, device_name=name, device=device)
    for rank, events in ranks.items():
        for event in of_kind(events, "iteration"):
            event["noise"] = quiet(rank, event["seconds"])
            if manifest.layout.ranks == 2 and rank == 0:
                event["noise"]["host"]["busy_seconds"] = 2.01 * event["seconds"]
            if change is not None and event["iteration"] >= manifest.measure.warmup:
                change(event["noise"])
    return ranks


def set_host(ranks: Ranks, **figures: float) -> Ranks:
    for event in of_kind(ranks[0], "iteration"):
        event["noise"]["host"].update(figures)
    return ranks


def on_host(**figures: float) -> Change:
    return lambda noise: noise["host"].update(figures) if "host" in noise else None


def doubts(tmp_path: Path, manifest: Manifest, ranks: Ranks, status: str = "suspect") -> str:
    validity = recorded(tmp_path, manifest, ranks, verifies="equal").validity
    assert validity.status == status, validity
    return "; ".join(validity.reasons)


@pytest.mark.parametrize("layout", [None, TWO_RANKS])
def test_a_quiet_run_is_valid_and_its_noise_is_summed_up(tmp_path: Path, layout: Layout | None) -> None:
    manifest = synthetic_manifest(layout=layout)
    record = recorded(tmp_path, manifest, noisy_ranks(manifest))
    assert (record.validity.status, record.validity.reasons) == ("valid", ())
    noise = record.noise
    assert noise.cpu_share.mean == pytest.approx(0.98 / 1.001)
    assert noise.others_cpus.worst == pytest.approx(0.03 / 1.001)
    assert noise.throttled_share is noise.cpu_mhz is noise.device_mhz is noise.device_others is None
    assert noise.stragglers == ()


def test_an_older_bundle_has_neither_and_what_is_not_known_is_no_reason(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    record = recorded(tmp_path / "older", manifest, noisy_ranks(manifest, rules=2))
    assert (record.noise, record.validity) == (None, None)
    unknown = noisy_ranks(manifest, lambda noise: noise.update(dict.fromkeys(noise)))
    record = recorded(tmp_path / "unknown", manifest, unknown)
    assert (record.validity.status, record.noise.cpu_share) == ("valid", None)


def test_a_worst_rank_is_named(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=TWO_RANKS)
    ranks = noisy_ranks(manifest)
    for event in of_kind(ranks[1], "iteration"):
        event["noise"].update(cpu_wait_seconds=0.1, thread_cpu_seconds=0.85)
    set_host(ranks, busy_seconds=2.05)
    record = recorded(tmp_path, manifest, ranks)
    assert (record.noise.cpu_wait_share.rank, record.noise.cpu_share.rank) == (1, 1)
    assert record.noise.cpu_wait_share.worst == pytest.approx(0.1 / 1.001)
    assert record.validity.reasons == ("rank 1 waited for a CPU 9.99 % of the time",)


def crowded_out(noise: dict[str, Any]) -> None:
    noise.update(cpu_wait_seconds=None, thread_cpu_seconds=0.9)
    on_host(busy_seconds=1.9)(noise)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda noise: noise.update(cpu_wait_seconds=0.03, thread_cpu_seconds=0.9), "rank 0 waited for a CPU 3 % of"),
        (lambda noise: noise.update(involuntary_switches=110), "rank 0 lost its CPU 111 times per CPU second"),
        (lambda noise: noise.update(major_faults=12), "rank 0 had 12 page faults a second that wait for a disk"),
        (lambda noise: noise.update(throttled_seconds=0.2), "a limit on CPU time held rank 0 back for 20 % of"),
        (on_host(steal_seconds=0.06), "the hypervisor of rank 0's host gave 5.17 % of the CPU time to other"),
        (on_host(memory_pressure_seconds=0.3), "tasks of rank 0's host waited for memory 30 % of the time"),
        (crowded_out, "rank 0 had its CPU for 89.9 % of the time while others ran"),
    ],
)
def test_what_disturbs_a_run_makes_it_suspect(tmp_path: Path, change: Change, reason: str) -> None:
    manifest = synthetic_manifest()
    ranks = noisy_ranks(manifest, lambda noise: on_host(busy_seconds=1.1)(noise) or change(noise))
    assert reason in doubts(tmp_path, manifest, ranks)


def test_others_count_where_the_run_needs_their_cpus_and_on_free_ones_if_they_are_many(tmp_path: Path) -> None:
    one, two = synthetic_manifest(), synthetic_manifest(layout=TWO_RANKS)
    assert doubts(tmp_path / "a", one, noisy_ranks(one, on_host(busy_seconds=1.4)), "valid") == ""
    told = "others used 0.56 of the 2 CPUs of rank 0, and shared caches and memory with the run"
    assert doubts(tmp_path / "d", one, noisy_ranks(one, on_host(busy_seconds=1.55))) == told

    def starved(noise: dict[str, Any]) -> None:
        noise.update(cpu_seconds=0.88, thread_cpu_seconds=0.88)
        on_host(busy_seconds=2.0)(noise)

    told = "others used 1.12 of the 2 CPUs of rank 0, of which the run needs 1"
    assert told in doubts(tmp_path / "b", one, noisy_ranks(one, starved))
    told = "others used 0.24 of the 2 CPUs of rank 0, of which the run needs 2"
    assert told in doubts(tmp_path / "c", two, noisy_ranks(two, starved))
    gpu = synthetic_manifest(device="cuda", precision="bf16")
    assert doubts(tmp_path / "e", gpu, noisy_ranks(gpu, on_host(busy_seconds=1.85)), "valid") == ""
    told = "others used 0.94 of the 2 CPUs of rank 0, which left 0.07 free"
    assert told in doubts(tmp_path / "f", gpu, noisy_ranks(gpu, on_host(busy_seconds=1.93)))


def test_where_nobody_else_worked_a_run_lost_its_cpus_to_its_own_threads(tmp_path: Path) -> None:
    four = synthetic_manifest(layout=Layout(devices_per_node=4, data=4))
    change = {"cpu_seconds": 0.5, "thread_cpu_seconds": 0.5, "cpu_wait_seconds": 0.4}
    ranks = set_host(noisy_ranks(four, lambda noise: noise.update(change)), busy_seconds=2.0)
    assert doubts(tmp_path / "more threads than CPUs", four, ranks, "valid") == ""
    two = synthetic_manifest(layout=TWO_RANKS)
    change = {"cpu_wait_seconds": 0.05, "thread_cpu_seconds": 0.9, "involuntary_switches": 300}
    ranks = noisy_ranks(two, lambda noise: noise.update(change))
    assert doubts(tmp_path / "a", two, ranks, "valid") == ""
    assert "rank 0 waited for a CPU 5 % of the time" in doubts(tmp_path / "b", two, set_host(ranks, busy_seconds=2.05))


def test_clocks_that_step_and_heat_are_reasons_and_a_power_cap_is_none(tmp_path: Path) -> None:
    manifest = synthetic_manifest(device="cuda", precision="bf16")
    device = {"sm_clock_mhz_mean": 1410.0, "temperature_max": 71, "throttle_reasons": ["sw_power_cap"], "samples": 9}
    capped = noisy_ranks(manifest, device=device)
    assert doubts(tmp_path / "a", manifest, capped, "valid") == ""
    hot = noisy_ranks(manifest, device={**device, "throttle_reasons": ["hw_thermal_slowdown", "sw_power_cap"]})
    of_kind(hot[0], "iteration")[5]["device"]["sm_clock_mhz_mean"] = 1320.0
    of_kind(hot[0], "iteration")[6]["device"]["other_processes"] = 2
    found = doubts(tmp_path / "b", manifest, hot)
    assert "clocks were held down by hw_thermal_slowdown" in found and "sw_power_cap" not in found
    assert "the clock of rank 0's GPU stepped between 1320 and 1410 MHz" in found
    assert "others computed" not in found, "one of the iterations told it, which is not all"
    for event in of_kind(hot[0], "iteration"):
        event["device"]["other_processes"] = 2
    assert "others computed on the GPU of rank 0, 2 processes at most" in doubts(tmp_path / "c", manifest, hot)


def wait(ranks: Ranks, rank: int, seconds: Callable[[int], float]) -> None:
    """How long ``rank`` waits at the end of training, by iteration."""
    for event in of_kind(ranks[rank], "phase"):
        if event["phase"] == "train":
            event["wait_seconds"] = seconds(event["iteration"])
            event["seconds"] -= event["wait_seconds"]


def test_a_rank_that_comes_late_once_makes_a_run_suspect_and_one_that_always_does_is_told(tmp_path: Path) -> None:
    manifest = synthetic_manifest(layout=TWO_RANKS)
    once = noisy_ranks(manifest)
    wait(once, 0, lambda iteration: 0.2 if iteration == 4 else 0.01)
    record = recorded(tmp_path / "a", manifest, once)
    assert record.validity.reasons == (
        "ranks waited 0.19 s longer than usual in 1 of 8 iterations, longest for rank 1 in iteration 4",
    )
    (straggler,) = record.noise.stragglers
    assert (straggler.rank, straggler.iterations, straggler.seconds) == (1, 1, pytest.approx(0.2))
    always = noisy_ranks(manifest)
    wait(always, 1, lambda iteration: 0.2)
    record = recorded(tmp_path / "b", manifest, always)
    assert [(each.rank, each.iterations) for each in record.noise.stragglers] == [(0, 8)]
    assert record.validity.status == "valid"


def test_time_that_passes_between_iterations_once_is_a_reason(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    ranks = noisy_ranks(manifest)
    for event in ranks[0]:
        event["time"] += 0.2 * event["seq"] / len(ranks[0])  # the usual, which every iteration has
        if event.get("iteration") is not None and event["iteration"] >= 6:
            event["time"] += 0.5
    ranks[0][-1]["time"] += 0.5
    assert doubts(tmp_path, manifest, ranks).startswith("0.5 s passed between iterations beyond the usual")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda noise: noise.update(cpu_seconds=3.0), r"tells 3 CPU seconds of its process in 1 s of iteration 2"),
        (lambda noise: noise.update(cpu_wait_seconds=0.2), "tells 1.18 seconds of one thread on a CPU or waiting"),
        (lambda noise: noise.update(seconds=0.5), "tells 0.5 s around the 1 s of iteration 2"),
        (on_host(busy_seconds=2.5), "tells 2.5 CPU seconds of its host in 1 s"),
    ],
)
def test_what_no_machine_can_do_is_invalid(tmp_path: Path, change: Change, reason: str) -> None:
    manifest = synthetic_manifest()
    found = doubts(tmp_path, manifest, noisy_ranks(manifest, change), "invalid")
    assert found.startswith("rank 0 " + reason)


def test_utilisation_above_the_peak_is_a_doubt_and_invalid_where_attention_is_masked(tmp_path, monkeypatch):
    manifest, device = synthetic_manifest(device="cuda", kind="trainer", backend="trl-grpo"), find_device(GPU)
    ranks = noisy_ranks(manifest, rules=4)
    facts = of_kind(ranks[0], "environment")[0]["facts"]
    for rules, allowed, peak in ((4, False, "fp32"), (3, True, "fp32"), (4, True, "tf32")):
        facts.update(derivation=rules, allow_tf32=allowed)
        compute = recorded(tmp_path / f"{rules}-{allowed}", manifest, ranks).compute
        assert compute.peak_flops == device.peak_flops[peak]
    for above, status in (("mfu", "suspect"), ("hfu_causal", "invalid")):
        slow = device.model_copy(update={"peak_flops": {"fp32": compute.peak_flops * getattr(compute, above) * 0.999}})
        monkeypatch.setattr("suite.bundle.utilisation.find_device", lambda name, slow=slow: slow)
        assert doubts(tmp_path / above, manifest, ranks, status).startswith(f"{above} is 1, above the peak")


LARGE = find_size("1.3B")


def slow(**peaks: Any) -> Any:
    """The GPU of these tests, but for what is given."""
    return find_device(GPU).model_copy(update=peaks)


def measured(pattern: str, gigabytes: float, scope: str = "within_node") -> dict[str, Any]:
    sizes = [{"bus_bytes_per_second": gigabytes * 1e9}, "unreadable"]
    return {"measurements": [None, {"scope": scope, "pattern": pattern, "sizes": sizes}]}


def judged(root, monkeypatch, device=None, memory_bytes=512 << 20, size=GPT, **facts):
    """Why a run on a GPU is invalid; empty where it is not."""
    manifest = synthetic_manifest(device="cuda", precision="bf16", size=size)
    ranks = ranks_of(manifest, rules=4, device_name=GPU, memory_bytes=memory_bytes)
    of_kind(ranks[0], "environment")[0]["facts"].update(facts)
    monkeypatch.setattr("suite.bundle.utilisation.find_device", lambda _name: device or slow())
    validity = recorded(root, manifest, ranks).validity
    return "; ".join(validity.reasons) if validity.status == "invalid" else ""


def test_a_phase_that_is_quicker_than_its_products_at_the_devices_peak_is_invalid(tmp_path, monkeypatch):
    plain = synthetic_manifest()
    work = iteration_flops(plain.size, plain.workload, plain.work.global_rollouts, attention="causal")
    peak = work.train / (SHARES["train"] * 1.001)
    reasons = judged(tmp_path, monkeypatch, slow(peak_flops={"bf16": peak}))
    assert "train took" in reasons and "score took" not in reasons
    assert judged(tmp_path / "just", monkeypatch, slow(peak_flops={"bf16": 1.01 * peak})) == ""


def test_decoding_that_outruns_the_devices_memory_is_invalid_where_no_cache_can_hold_the_weights(tmp_path, monkeypatch):
    slow_memory = slow(memory_bytes_per_second=1e6)
    assert judged(tmp_path / "small", monkeypatch, slow_memory) == ""
    assert "decoding read" in judged(tmp_path, monkeypatch, slow_memory, memory_bytes=64 << 30, size=LARGE)


def test_a_peak_below_what_the_layout_holds_is_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the peak is 0.604 GB" in judged(tmp_path, monkeypatch, size=LARGE)
    assert judged(tmp_path / "enough", monkeypatch, size=LARGE, memory_bytes=64 << 30) == ""


@pytest.mark.parametrize(
    ("network", "is_wrong"),
    [
        (measured("send_receive", 290), False),
        (measured("send_receive", 310), True),
        (measured("all_reduce", 310), False),  # a switch that adds up
        (measured("all_reduce", 610), True),
        (measured("all_gather", 310, "across_nodes"), False),
        ({"measurements": 7}, False),
    ],
)
def test_messages_that_no_link_of_the_device_carries_are_invalid(tmp_path, monkeypatch, network, is_wrong):
    assert ("is the bus bandwidth of" in judged(tmp_path, monkeypatch, network=network)) is is_wrong


def test_work_that_is_no_one_number_is_invalid(tmp_path: Path) -> None:
    manifest = synthetic_manifest()
    ranks = noisy_ranks(manifest)
    event = of_kind(ranks[0], "iteration")[5]
    event["counts"] = {**event["counts"], "trained_tokens": 1}
    validity = recorded(tmp_path, manifest, ranks, verifies="inconsistent").validity
    assert validity.status == "invalid"
    assert validity.reasons[0].startswith("the work is not one number: trained_tokens is 1")


@pytest.mark.parametrize(("busy", "factor", "found"), [(1.02, 1.0, True), (1.9, 1.0, False), (1.9, 0.65, True)])
def test_a_crowded_run_may_be_late_between_its_iterations_but_not_by_half(tmp_path, busy, factor, found):
    manifest = synthetic_manifest()
    ranks = noisy_ranks(manifest, lambda noise: noise["host"].update(busy_seconds=busy))
    late = 0.0
    for event in ranks[0]:
        late += 0.2 * (event["kind"] == "iteration")
        event["time"] += late
        event.update({name: factor * event[name] for name in ("seconds", "wait_seconds") if name in event})
    bundle = Bundle(write_bundle(tmp_path, manifest, ranks, driver_events(manifest, "ok")))
    assert ("event-times" in {finding.name for finding in verify(bundle).findings}) == found


def figures(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), st.none() | st.just(0) | st.floats(1e-10, 1e12))


@settings(max_examples=30)
@given(
    noise=figures("seconds", "cpu_seconds", "thread_cpu_seconds", "cpu_wait_seconds", "cpu_mhz", "other"),
    host=st.none() | figures("cpus", "busy_seconds", "steal_seconds", "load"),
)
def test_any_noise_that_is_taken_gives_a_record(tmp_path_factory: Any, noise: dict, host: dict | None) -> None:
    manifest = synthetic_manifest(layout=TWO_RANKS, iterations=2, warmup=1)
    ranks = ranks_of(manifest, rules=3)
    for event in of_kind([*ranks[0], *ranks[1]], "iteration"):
        event["noise"] = {**noise, "host": host}
    assert recorded(tmp_path_factory.mktemp("any"), manifest, ranks).validity is not None
