"""Whether a run's figures are its own: the rules, each with its threshold and the reason for it.

What is not known is no reason for anything. A run that something disturbed is ``suspect``; one whose figures contradict
each other or what a machine can do is ``invalid``.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from suite.bundle.event_fields import TRAINER, Iteration
from suite.bundle.facts import facts_of, inner
from suite.bundle.noise import Heard, hear, summarise
from suite.bundle.parts import ClockRange, Noise, Validity
from suite.bundle.record import Compute
from suite.bundle.timeline import Timeline

#: Of the time, that may be lost to others: less than half of the margin of 5 % within which rates are called equal.
LOST_SHARE = 0.02
#: CPUs that others may use of those the run needs: on two CPUs, the whole of which it needs, a twentieth of each.
OTHERS_CPUS = 0.1
#: Of all CPUs, on those that the run leaves free: others share caches, memory and, as hyperthreads, cores with it. A
#: busy loop on the free one of two CPUs cost a rank about a sixth of its rate (docs/measuring.md).
BESIDE_SHARE = 0.25
#: Others that used less than this cannot have taken a CPU for longer than counts; a rank has threads of its own, too.
ALONE_CPUS = 0.05
#: Beside a GPU, whose ranks use CPUs as they need them: of all CPUs, what must be left while others use some.
LEFT_SHARE = 0.05
#: Per CPU second. Beside one other that wants the same CPU, Linux takes turns every 3 to 4 ms, which is above 100.
SWITCHES_PER_CPU_SECOND = 100.0
#: Per second. Each waits for a disk, from 0.1 ms (flash) to 10 ms (a turning one): 0.1 to 10 % of the time.
MAJOR_FAULTS_PER_SECOND = 10.0
#: The rate of a chip follows its clock: a step of this share is as large as the margin.
CLOCK_STEP = 0.05
#: A single rank on a CPU computes all the time; where it cannot say how long it waited for its CPU, this is missed.
CPU_SHARE = 0.95
#: Of an iteration, that all ranks together wait for late ones beyond the usual before that iteration is unlike others.
LATE_BEYOND_USUAL = 0.1
#: Of the counted time, that passes between iterations beyond the usual.
GAP_SHARE = 0.05
#: Reasons of low clocks that are the machine's trouble: heat, a weak supply. A power cap is how large GPUs work.
SLOWED_BY = frozenset(("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"))
#: Two clocks of one process may differ by so much: a share, and seconds (a tick is 10 ms at most).
_ROUNDING_SHARE, _ROUNDING_SECONDS = 0.02, 0.05
#: Figures of the noise, the most that their worst may be, and what is said beyond it: what ranks lost to others, and
#: what their hosts, hypervisors and limits held back.
_LOST = (
    ("cpu_wait_share", LOST_SHARE, "rank {rank} waited for a CPU {share} of the time"),
    ("involuntary_switches", SWITCHES_PER_CPU_SECOND, "rank {rank} lost its CPU {worst:.0f} times per CPU second"),
)
_HELD_BACK = (
    ("throttled_share", LOST_SHARE, "a limit on CPU time held rank {rank} back for {share} of the time"),
    ("steal_share", LOST_SHARE, "the hypervisor of rank {rank}'s host gave {share} of the CPU time to other machines"),
    ("memory_pressure_share", LOST_SHARE, "tasks of rank {rank}'s host waited for memory {share} of the time"),
    ("major_faults", MAJOR_FAULTS_PER_SECOND, "rank {rank} had {worst:.0f} page faults a second that wait for a disk"),
)


def noise_and_validity(
    timeline: Timeline, work: Compute | None, against_device: Iterable[str], rows_in_turns: int
) -> tuple[Noise | None, Validity | None]:
    """Null of bundles of before there was such a thing, and where no iteration counts. Raises DamagedBundle.

    ``against_device``: what of the run's figures its device cannot do; of no bundle before derivation 4.
    """
    if timeline.rules < 3 or not timeline.counted:
        return None, None
    heard = hear(timeline)
    noise = summarise(heard, timeline)
    is_judged = timeline.rules >= 4
    used = work if is_judged else None
    cannot_be = (*_above_peak(used, ("hfu_causal",)), *(against_device if is_judged else ()))
    impossible = (*_impossible(timeline), *cannot_be)
    if impossible:
        return noise, Validity(status="invalid", reasons=impossible)
    doubts = (*_disturbances(heard, noise, timeline, rows_in_turns), *_above_peak(used, ("mfu", "hfu", "mbu")))
    return noise, Validity(status="suspect" if doubts else "valid", reasons=doubts)


def _disturbances(heard: Heard, noise: Noise, timeline: Timeline, rows_in_turns: int) -> Iterator[str]:
    """What may have moved the run's rate.

    Of runs in turns a ratio is made, which what slows all of them alike does not move, and whose interval holds the
    rest. Others that want the same CPUs do: who gives its CPU up often gets it back sooner (docs/measuring.md).
    """
    yield from _others(heard)
    if rows_in_turns == 1:
        yield from _lost_cpu(noise, heard, timeline)
        yield from _beyond(noise, _HELD_BACK)
        yield from _steps(noise.cpu_mhz, "CPU")
        slowed = SLOWED_BY.intersection(noise.device_throttling)
        if slowed:
            yield f"clocks were held down by {', '.join(sorted(slowed))}"
        yield from _steps(noise.device_mhz, "GPU")
    beside, partners = noise.device_others, rows_in_turns - 1  # of each row that it takes turns with one process
    if beside is not None and beside.worst > partners:
        yield f"others computed on the GPU of rank {beside.rank}, {beside.worst - partners:.0f} processes at most"
    if rows_in_turns == 1:
        yield from _late(heard, timeline)
        yield from _gaps(timeline)


def _beyond(noise: Noise, rules: Iterable[tuple[str, float, str]]) -> Iterator[str]:
    for name, most, words in rules:
        figure = getattr(noise, name)
        if figure is not None and figure.worst > most:
            yield words.format(rank=figure.rank, worst=figure.worst, share=f"{100 * figure.worst:.3g} %")


def _others(heard: Heard) -> Iterator[str]:
    """Others on CPUs that the run needs, and many beside them."""
    for use in heard.uses:
        taken = f"others used {use.others:.2f} of the {use.cpus} CPUs of rank {use.rank}"
        if use.needed is None:
            left = use.cpus - use.used - use.others
            if use.others > OTHERS_CPUS and left < LEFT_SHARE * use.cpus:
                yield f"{taken}, which left {max(0.0, left):.2f} free"
        elif use.others > max(0, use.cpus - use.needed) + OTHERS_CPUS:
            yield f"{taken}, of which the run needs {min(use.needed, use.cpus)}"
        elif use.others > BESIDE_SHARE * use.cpus:
            yield f"{taken}, and shared caches and memory with the run"


def _lost_cpu(noise: Noise, heard: Heard, timeline: Timeline) -> Iterator[str]:
    """What ranks lost to others. With more threads than CPUs, or with nobody else there, a run loses to itself."""
    if any(use.needed is not None and use.needed > use.cpus for use in heard.uses):
        return
    if heard.uses and all(use.others < ALONE_CPUS for use in heard.uses):
        return
    yield from _beyond(noise, _LOST)
    measure, share = timeline.manifest.measure, noise.cpu_share
    alone = measure.device == "cpu" and timeline.manifest.layout.ranks == 1 and measure.threads_per_rank == 1
    busy = any(use.others > OTHERS_CPUS for use in heard.uses)
    if alone and busy and noise.cpu_wait_share is None and share is not None and share.worst < CPU_SHARE:
        yield f"rank {share.rank} had its CPU for {100 * share.worst:.3g} % of the time while others ran"


def _steps(clock: ClockRange | None, what: str) -> Iterator[str]:
    if clock is not None and clock.lowest < (1 - CLOCK_STEP) * clock.highest:
        yield (
            f"the clock of rank {clock.rank}'s {what} stepped between {clock.lowest:.0f} and {clock.highest:.0f} MHz "
            "from iteration to iteration"
        )


def _late(heard: Heard, timeline: Timeline) -> Iterator[str]:
    """Waiting that is unlike that of other iterations: what a layout makes ranks wait, it does each time."""
    waited = {iteration: math.fsum(of_ranks.values()) for iteration, of_ranks in heard.late.items()}
    if not any(waited.values()):
        return
    usual = median(waited.values())
    unlike = {
        iteration: seconds - usual
        for iteration, seconds in waited.items()
        if seconds - usual > LATE_BEYOND_USUAL * timeline.seconds[iteration]
    }
    lost = math.fsum(unlike.values())
    if lost > LOST_SHARE * math.fsum(timeline.counted_seconds):
        worst = max(unlike, key=lambda iteration: unlike[iteration])
        rank = max(heard.late[worst], key=lambda rank: heard.late[worst][rank])
        yield (
            f"ranks waited {lost:.3g} s longer than usual in {len(unlike)} of {len(waited)} iterations, longest "
            f"for rank {rank} in iteration {worst}"
        )


def _gaps(timeline: Timeline) -> Iterator[str]:
    """Time between successive counted iterations beyond the usual: the process stood still, or did something else."""
    times = [event.time for event in timeline.training.of(0, Iteration)]
    gaps = [
        times[index] - times[index - 1] - timeline.seconds[index]
        for index in timeline.counted
        if 0 < index < len(times)
    ]
    if not gaps:
        return
    usual = max(0.0, median(gaps))
    lost = math.fsum(max(0.0, gap - usual) for gap in gaps)
    if lost > GAP_SHARE * math.fsum(timeline.counted_seconds):
        yield f"{lost:.3g} s passed between iterations beyond the usual"


def _above_peak(work: Compute | None, figures: tuple[str, ...]) -> Iterator[str]:
    """``hfu_causal`` counts what is executed at least. The others count attention that a kernel may skip, bytes that a
    cache may hold, and experts that a router may leave out, so that they alone prove nothing."""
    for name in figures:
        share = getattr(work, name, None)
        if share is not None and share > 1:
            yield f"{name} is {share:.3g}, above the peak of the device: doubt the time or the device's name"


def _impossible(timeline: Timeline) -> Iterator[str]:
    """Work that is no one number, and times that no machine can have: the first of each rank."""
    if timeline.counts_problem:
        yield f"the work is not one number: {timeline.counts_problem}"
    found: dict[int | None, str] = {}
    for event in timeline.counted_events():
        # what is around seconds of a trainer's log begins and ends a moment later
        own = 0.0 if timeline.rules >= 4 and event.source == TRAINER else event.seconds
        problem = _impossible_window(event.noise or {}, own, facts_of(timeline.events, event.rank or 0))
        if problem:
            found.setdefault(event.rank, f"rank {event.rank} tells {problem} of iteration {event.iteration}")
    yield from found.values()


def _impossible_window(window: Mapping[str, Any], iteration_seconds: float, facts: Mapping[str, Any]) -> str | None:
    seconds = window.get("seconds")
    if seconds is None:
        return None
    if seconds < iteration_seconds:
        return f"{seconds:.3g} s around the {iteration_seconds:.3g} s"
    machine, host = inner(facts, "cpu", "threads"), window.get("host") or {}
    thread = (window.get("thread_cpu_seconds"), window.get("cpu_wait_seconds"))
    claims: tuple[tuple[str, tuple, Any], ...] = (
        ("CPU seconds of its process", (window.get("cpu_seconds"),), machine if type(machine) is int else None),
        ("seconds of one thread on a CPU or waiting for one", thread, 1),
        ("CPU seconds of its host", (host.get("busy_seconds"), host.get("steal_seconds")), host.get("cpus")),
    )
    for what, claimed, cpus in claims:
        if None in (*claimed, cpus):
            continue
        if math.fsum(claimed) > seconds * cpus * (1 + _ROUNDING_SHARE) + _ROUNDING_SECONDS:
            return f"{math.fsum(claimed):.3g} {what} in {seconds:.3g} s"
    return None
