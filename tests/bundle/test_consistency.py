"""Every change that makes a figure better without fitting the rest of the bundle has a finding of its name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.bundle.events import Event
from suite.bundle.facts import _lengths
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify, verify_all
from suite.spec.layout import Layout
from tests.bundle.recorded import put
from tests.bundle.tampering import RUNS, change, copied, derive_again, events_of, renamed, shipped, write_events
from tests.synthetic import LLAMA, facts_of, grpo_workload, make_bundle, synthetic_manifest

ONE, TWO, SMALL = (shipped(row) for row in ("deepspeed-3M-n1", "megatron-3M-n2", "deepspeed-1M-n2"))
#: a repeat without time that the hypervisor took, after which little may be missing
QUIET = shipped("deepspeed-3M-n1", 2)


def names(path: Path, status: str = "inconsistent") -> set[str]:
    result = verify(Bundle(path))
    assert result.status == status, (result.status, result.differences)
    assert all(finding.text and "\n" not in finding.text and len(finding.text) < 400 for finding in result.findings)
    return {finding.name for finding in result.findings}


def scaled(kinds: tuple[str, ...], factor: float, phase: str | None = None) -> Callable[[Event], object]:
    """Seconds of iterations, of phases with their waits, or of one phase, times a factor."""

    def edit(event: Event) -> None:
        if event["kind"] in kinds and phase in (None, event.get("phase")):
            event["seconds"] *= factor
            if event["kind"] == "phase" and phase is None:
                event["wait_seconds"] *= factor

    return edit


def longer(seconds: float, *phases: str) -> Callable[[Event], object]:
    """Iterations, and phases of them, by so much."""

    def edit(event: Event) -> None:
        if event["kind"] == "iteration" or (event["kind"] == "phase" and event["phase"] in phases):
            event["seconds"] += seconds

    return edit


def halved(*fields: str) -> Callable[[Event], object]:
    """Peaks of memory."""
    return lambda event: event["kind"] == "memory" and event.update({name: event[name] // 2 for name in fields})


def rounded(event: Event, digits: int | None) -> None:
    if digits is not None:
        event.update({name: round(event[name], digits) for name in ("seconds", "wait_seconds") if name in event})


def waiting(event: Event) -> None:
    if (event["kind"], event.get("iteration"), event.get("phase")) == ("phase", 3, "train"):
        event["wait_seconds"] += 5.0


def of_facts(value: object, *place: str) -> Callable[[Event], object]:
    """Another fact of the environment event."""
    return lambda event: event["kind"] == "environment" and put(event["facts"], place, value)


def more_tokens(event: Event) -> None:
    if event["kind"] == "iteration":
        event["counts"]["response_tokens"] *= 2


BOTH, TIMES = ("iteration", "phase"), {"event-times", "phase-times"}
TAMPERED = {
    "all seconds halved": (ONE, scaled(BOTH, 0.5), (), {"event-times", "phase-times"}),
    "all seconds halved, in a small window": (SMALL, scaled(BOTH, 0.5), (), {"event-times", "phase-times"}),
    "all seconds 15 % less": (QUIET, scaled(BOTH, 0.85), (), {"event-times", "phase-times"}),
    "all seconds 15 % more": (TWO, scaled(BOTH, 1.15), (), {"event-times", "phase-times"}),
    "19 ms on every iteration": (SMALL, longer(0.019), (), {"event-times"}),
    "19 ms on every iteration, one rank": (ONE, longer(0.019), (), {"event-times"}),
    "19 ms less of every iteration": (QUIET, longer(-0.019, "train"), (), {"event-times", "phase-times"}),
    "2 ms less of every iteration": (ONE, longer(-0.002), (), {"phase-sums"}),
    "one phase halved": (ONE, scaled(("phase",), 0.5, "train"), (), {"phase-times"}),
    "the phase that is first halved": (ONE, scaled(("phase",), 0.5, "generate"), (), {"phase-times"}),
    "one phase halved on one rank": (TWO, scaled(("phase",), 0.5, "train"), (1,), {"phase-times", "rank-waits"}),
    "iterations halved on one rank": (TWO, scaled(BOTH, 0.5), (0,), {*TIMES, "rank-times", "rank-waits"}),
    "a wait of 5 s": (TWO, waiting, (1,), {"phase-times", "phase-sums", "rank-waits"}),
    "allocated memory halved": (ONE, halved("peak_allocated_bytes"), (), {"memory-peaks"}),
    "resident memory halved": (ONE, halved("peak_resident_bytes"), (), {"memory-peaks"}),
    "all memory halved": (TWO, halved("peak_allocated_bytes", "peak_resident_bytes"), (), {"memory-peaks"}),
    "twice the tokens": (ONE, more_tokens, (), {"work-counts"}),
    "another torch": (ONE, of_facts("2.9.0", "packages", "torch"), (), {"stack"}),
    "another processor on one rank": (TWO, of_facts("Xeon", "cpu", "model"), (1,), {"machine"}),
    "ceilings of another precision": (ONE, of_facts("bfloat16", "ceilings", "matmul_dtype"), (), {"ceilings"}),
    "another reward than the constant": (ONE, lambda event: event.get("stats", {}).update(reward=0.9), (), {"reward"}),
    "no noise": (ONE, lambda event: event.pop("noise", None), (), {"noise"}),
    "other threads": (ONE, of_facts(4, "threads", "torch"), (), {"stack"}),
    "no CPU time": (ONE, lambda event: event.get("noise") and event["noise"].update(cpu_seconds=0.0), (), {"noise"}),
    "rules of before there was noise": (ONE, of_facts(2, "derivation"), (), {"noise"}),
    "a late iteration that skipped a step": (
        ONE,
        lambda event: (event["kind"], event.get("iteration")) == ("iteration", 5) and event.update(skipped_steps=1),
        (),
        {"voided"},
    ),
    "turns of a run that was alone": (ONE, lambda event: event.pop("turns", None), ("driver",), {"voided"}),
    "another time than the driver's": (ONE, lambda event: event.update(time=event["time"] + 20), (), {"run-times"}),
    "no noise once": (TWO, lambda event: event.get("iteration") == 7 and event.pop("noise", None), (1,), {"noise"}),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_change_of_a_real_bundle_is_found_though_its_record_follows(tmp_path: Path, case: str) -> None:
    name, edit, writers, expected = TAMPERED[case]
    path = copied(name, tmp_path)
    change(path, edit, *writers)
    assert names(path) == expected


def test_shorter_samples_than_the_workload_asks_for_are_found() -> None:
    manifest = synthetic_manifest(size=LLAMA, workload=grpo_workload())
    halved = tuple(max(1, length // 2) for length in manifest.work.lengths.response)
    lengths = manifest.work.lengths.model_copy(update={"response": halved})
    shorter = manifest.model_copy(update={"hash": "-", "work": manifest.work.model_copy(update={"lengths": lengths})})
    assert _lengths(manifest) == () and "the responses of the manifest have" in _lengths(shorter)[0]


@pytest.mark.parametrize("also", [(), ("energy_joules",)], ids=["counter", "counter and window"])
def test_energy_that_counter_and_power_do_not_give_is_found(tmp_path: Path, also: tuple[str, ...]) -> None:
    def third(event: Event) -> None:
        window = event.get("device")
        if window:
            used = window["energy_counter_end_joules"] - window["energy_counter_begin_joules"]
            window["energy_counter_end_joules"] -= 2 / 3 * used
            window.update({name: window[name] / 3 for name in also})

    run = min((RUNS.parents[1] / "h200/runs").glob("deepspeed-1.3B-*-r1"))
    path = Path(shutil.copytree(run, tmp_path / run.name))
    change(path, third)
    assert names(path) == {"energy"}


@pytest.mark.parametrize("digits", [None, 6], ids=["as they are", "rounded to microseconds"])
def test_a_rank_that_is_a_copy_is_found(tmp_path: Path, digits: int | None) -> None:
    path = copied(TWO, tmp_path)
    copy = [{**event, "rank": 1, "time": event["time"] + 1e-4} for event in events_of(path, 0)]
    copy[0]["local_rank"] = 1
    for event in copy:
        rounded(event, digits)
    write_events(path, 1, copy)
    derive_again(path)
    assert names(path) == {"copied-rank"}


@pytest.mark.parametrize(("factor", "says"), [(0.1, "the whole run"), (10.0, "as it tells")])
def test_an_elapsed_time_that_the_drivers_events_do_not_have_is_found(tmp_path: Path, factor: float, says: str) -> None:
    path = copied(shipped("megatron-3M-n1"), tmp_path)
    elapsed = factor * events_of(path, "driver")[-1]["elapsed_seconds"]
    change(path, lambda event: event["kind"] == "end" and event.update(elapsed_seconds=elapsed), "driver")
    assert names(path) == {"run-times"}
    assert says in verify(Bundle(path)).findings[0].text


GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory_bytes", "peaks", "found"),
    [
        (20 * GIB, {}, set()),
        (20 * GIB, {"peak_reserved_bytes": GIB, "peak_device_bytes": 2 * GIB}, {"memory-peaks"}),
        (20 * GIB, {"peak_device_bytes": 81 * GIB}, {"memory-peaks"}),
        (20 * GIB, {"peak_allocated_bytes": 5 * GIB, "peak_reserved_bytes": 5 * GIB}, {"memory-peaks"}),
        (1 << 20, {"peak_reserved_bytes": 1 << 20}, {"memory-floor"}),
    ],
    ids=["can be", "less reserved than allocated", "more than there is", "more outside", "less than the layout needs"],
)
def test_peaks_of_a_gpu_that_cannot_be_are_found(tmp_path, memory_bytes, peaks, found):
    manifest = synthetic_manifest(device="cuda", precision="bf16")
    facts = facts_of(manifest, "NVIDIA A100-SXM4-80GB")
    facts["device"]["memory_bytes"] = 80 * GIB
    facts["communicators"] = {"eager": True, "outside_allocator_bytes": {"built": 448 << 20}}
    path = make_bundle(tmp_path, manifest, memory_bytes=memory_bytes, facts=facts)
    change(path, lambda event: event["kind"] == "memory" and event.update(peaks))
    assert names(path, "inconsistent" if found else "equal") >= found


def statuses(root: Path) -> dict[str, set[str]]:
    checked = verify_all(find_bundles([root]), (root,))
    return {bundle.path.name: {one.name for one in result.findings} for bundle, result in checked if result.findings}


def repeats(root: Path, *numbers: int) -> list[Path]:
    """Real repeats of one row."""
    return [copied(f"{ONE[:-1]}{number}", root) for number in numbers]


def copied_as(root: Path, repeat: int) -> Path:
    """The first repeat once more, as another one."""
    again = copied(ONE, root / "new").rename(root / "copy")
    return renamed(again, f"{ONE[:-1]}{repeat}", repeat=repeat)


def shifted(path: Path, seconds: float, digits: int | None = None) -> None:
    """As if it had been run later."""

    def edit(event: Event) -> None:
        event["time"] += seconds
        rounded(event, digits)

    change(path, edit)
    change(path, lambda event: event.update(time=event["time"] + seconds), "driver")


@pytest.mark.parametrize("digits", [None, 9, 6])
def test_another_run_shifted_in_time_is_no_repeat(tmp_path: Path, digits: int | None) -> None:
    repeats(tmp_path, 1, 2, 3)
    copy = copied_as(tmp_path, 4)
    shifted(copy, 3600, digits)
    assert verify(Bundle(copy)).status == "equal"
    assert statuses(tmp_path) == {copy.name: {"copied-seconds"}}


def test_phases_of_another_run_are_found_where_the_iterations_are_not(tmp_path: Path) -> None:
    copied(ONE, tmp_path)
    copy = copied_as(tmp_path, 2)
    change(copy, lambda event: event["kind"] == "iteration" and event.update(seconds=event["seconds"] + 1e-4))
    shifted(copy, 1000)
    assert statuses(tmp_path) == {copy.name: {"copied-seconds"}}


def test_phases_that_agree_by_chance_with_another_rows_are_no_copy() -> None:
    def run(name: str, row: str, seconds: tuple[float, ...]) -> Trace:
        where = {"host": None, "started": None, "ended": None, "digest": None}
        return Trace(Path(name), name, row, "plan", 1, **where, seconds=seconds, phases=(0.1, 0.2, 0.3, 0.4))

    first = run("a", "row", (1.0, 1.1))
    assert folder_findings([first, run("b", "other row", (1.2, 1.3))], []) == {}
    assert Path("c") in folder_findings([first, run("c", "row", (1.2, 1.3))], [])


def test_a_run_id_twice_in_one_folder_is_found_and_beside_each_other_is_not(tmp_path: Path) -> None:
    copied(ONE, tmp_path / "a")
    other = copied(ONE[:-1] + "2", tmp_path / "b")
    copy = renamed(other, ONE, repeat=1)
    assert statuses(tmp_path) == {}
    (tmp_path / "a" / "old").mkdir()
    copy.rename(tmp_path / "a" / "old" / ONE)
    (found,) = [result.findings for _, result in verify_all(find_bundles([tmp_path])) if result.findings]
    assert [finding.name for finding in found] == ["run-id"]
    assert str(tmp_path / "a" / ONE) in found[0].text
    shutil.rmtree(tmp_path / "a" / "old" / ONE)
    copied(ONE, tmp_path / "a" / "old")
    assert statuses(tmp_path) == {ONE: {"copied-run"}}, "the same content is a copy, not another run of that id"


def test_a_renamed_folder_makes_a_bundle_inconsistent_and_one_that_was_moved_aside_does_not(tmp_path: Path) -> None:
    copied(ONE, tmp_path).rename(tmp_path / "best")
    for status in ("inconsistent", "missing record"):
        ((_, result),) = verify_all(find_bundles([tmp_path]))
        assert result.status == status and [finding.name for finding in result.findings] == ["folder-name"]
        assert status == "missing record" or result.differences == ()
        (tmp_path / "best" / "record.json").unlink(missing_ok=True)
    (tmp_path / "attic").mkdir()
    (tmp_path / "best").rename(tmp_path / "attic" / f"{ONE}.1")
    assert statuses(tmp_path / "attic") == {}


def test_a_repeat_that_is_not_there_is_found(tmp_path: Path) -> None:
    repeats(tmp_path, 1, 3)
    ((bundle, result),) = [pair for pair in verify_all(find_bundles([tmp_path])) if pair[1].findings]
    assert bundle.id == ONE and f"{ONE[:-1]}2 of 3 repeats not in" in result.findings[0].text
    by_name = sorted(tmp_path.iterdir())
    assert not any(result.findings for _, result in verify_all(find_bundles(by_name), by_name))
    (tmp_path / ".submitted").mkdir()
    (tmp_path / ".submitted" / f"{ONE[:-1]}2.json").touch()
    assert statuses(tmp_path) == {}


@pytest.mark.parametrize("present", ["failed", "damaged"])
def test_a_repeat_that_failed_is_there(tmp_path: Path, present: str) -> None:
    repeats(tmp_path, 1, 2, 3)
    second = tmp_path / f"{ONE[:-1]}2"
    if present == "damaged":
        (second / "manifest.json").write_text("{")
    else:
        change(second, lambda event: event["kind"] == "end" and event.update(status="failed"), "driver")
    assert statuses(tmp_path) == {}


def test_two_runs_of_a_plan_at_one_time_are_found(tmp_path: Path) -> None:
    first, second = repeats(tmp_path, 1, 2)
    began = [events_of(path, "driver")[0]["time"] for path in (first, second)]
    shifted(second, began[0] - began[1] + 1.0)
    assert statuses(tmp_path) == {second.name: {"overlapping-runs"}}
    facts = json.loads((second / "environment.json").read_text())
    facts["host"]["host"] = "another"
    (second / "environment.json").write_text(json.dumps(facts))
    derive_again(second)
    assert statuses(tmp_path) == {}


def later(seconds: float) -> Callable[[Event], object]:
    """All from the middle of the run on."""
    return lambda event: event["seq"] > 60 and event.update(time=event["time"] + seconds)


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (later(0.7), set()),
        (later(0.8), {"event-times"}),
        (scaled(("phase",), 0.95, "train"), set()),
        (scaled(("phase",), 0.93, "train"), {"phase-times"}),
    ],
)
def test_what_a_machine_may_add_is_let_be_and_little_more_is_found(tmp_path, edit, found):
    path = make_bundle(tmp_path, synthetic_manifest())
    change(path, edit)
    assert names(path, "inconsistent" if found else "equal") == found


@pytest.mark.parametrize(
    ("seconds", "is_seen", "found"),
    [(0.4, True, set()), (0.4, False, {"rank-waits"}), (0.6, True, {"rank-waits"})],
)
def test_a_rank_may_leave_a_barrier_late_where_its_events_show_it(tmp_path, seconds, is_seen, found):
    """Behind iteration 3 rank 1 is late once: that iteration is longer, and the next phase shorter."""

    def late(event: Event) -> None:
        place = (event["kind"], event.get("iteration"))
        if place == ("iteration", 3):
            event.update(seconds=event["seconds"] + seconds, time=event["time"] + seconds * is_seen)
        elif place == ("iteration", 4) or (*place, event.get("phase")) == ("phase", 4, "generate"):
            event["seconds"] -= seconds

    path = make_bundle(tmp_path, synthetic_manifest(layout=Layout(devices_per_node=2, data=2)), 2.0)
    change(path, late, 1)
    assert {finding.name for finding in verify(Bundle(path)).findings if finding.name.startswith("rank")} == found


def test_a_run_that_was_cut_off_in_its_second_iteration_has_nothing_found_in_it(tmp_path):
    path = make_bundle(tmp_path, status=None, completed=1)
    derive_again(path)
    assert names(path, "equal") == set()
