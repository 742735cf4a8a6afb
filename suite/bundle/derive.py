"""From a bundle's manifest, environment and events to its record, and from nothing else."""

from collections.abc import Iterable, Iterator
from operator import sub

from suite.bundle import rates
from suite.bundle.event_fields import DriverEnd, Failed, Iteration, Launch, RankEnd, Start
from suite.bundle.events import Events, rank_name
from suite.bundle.evidence import recorded_evidence
from suite.bundle.facts import disturbance_notes, facts_of, not_as_asked
from suite.bundle.files import DamagedBundle
from suite.bundle.manifest_file import once_per_manifest
from suite.bundle.noise import energy, throttle_reasons
from suite.bundle.parts import Noise
from suite.bundle.record import (
    NO_WORK,
    Environment,
    Evidence,
    Failure,
    Iterations,
    Record,
    RunFacts,
    Status,
    Turns,
    as_record,
    plain,
)
from suite.bundle.sides import overlap, with_sides_compared
from suite.bundle.store import Bundle, StillRunning
from suite.bundle.timeline import Timeline, make_timeline
from suite.bundle.utilisation import compute, impossible_figures, memory
from suite.bundle.validity import noise_and_validity
from suite.spec.algorithms import PPO_NAME
from suite.spec.manifest import Manifest

#: Time between the counted iterations beyond their own that is worth a word: a share of them, and seconds.
_GAP_SHARE, _GAP_SECONDS = 0.05, 0.1
#: A clock that is set is worth a word from here on; its slewing is not.
_BACK_SECONDS = 1.0
#: More than any run that failed had: a manifest may ask for tens of thousands of ranks of which none was there.
_MOST_PROBLEMS = 4096
_strategy = once_per_manifest(lambda manifest: manifest.layout.strategy())


def derive(
    bundle: Bundle,
    manifest: Manifest | None = None,
    events: Events | None = None,
    evidence: Evidence | None = None,
    is_over: bool = False,
) -> Record:
    """The record of a run that is over, by the rules of docs/contracts.md.

    ``manifest``, ``events`` and ``evidence``: the bundle's, where they were read already. ``is_over``: as its holder
    knows. Raises DamagedBundle when the bundle cannot be trusted, StillRunning while a driver holds it and has not
    written its end.
    """
    manifest = manifest or bundle.manifest()
    events, driver_facts = events or bundle.events(manifest), bundle.environment()
    if not is_over and not events.of_driver(DriverEnd) and bundle.running():
        raise StillRunning(f"run {bundle.id} is still going on; its record is derived when it ends")
    timeline = with_sides_compared(make_timeline(events, manifest))
    status, failure = _ending(timeline)
    shares, stale, beside = rates.phases(timeline), rates.staleness(timeline), overlap(timeline)
    algorithm = manifest.workload.algorithm
    work, work_notes = compute(timeline, shares, beside)
    turns = _turns(timeline)
    rows = 1 if turns is None else len(turns.rows)
    peaks = memory(timeline)
    cannot_be = impossible_figures(timeline, work, shares, peaks)
    noise, validity = noise_and_validity(timeline, work, cannot_be, rows)
    made = Record(
        run=_run_facts(events, manifest),
        status=status,
        failure=failure,
        counts=timeline.counts,
        throughput=rates.throughput(timeline),
        phases=shares,
        details=rates.details(timeline),
        phase_intervals=rates.phase_intervals(timeline),
        waits=rates.waits(timeline),
        void_iterations=timeline.void,
        algorithm=None if algorithm.name == PPO_NAME else algorithm.text(),  # records of PPO stay as they were
        lengths=rates.realised_lengths(manifest),
        padding=rates.padding(manifest, timeline.counts),
        rollout=rates.rollout(timeline),
        staleness=stale,
        overlap=beside,
        memory=peaks,
        compute=work,
        energy=energy(timeline),
        steady_state=rates.steadiness(timeline),
        noise=noise,
        validity=validity,
        iterations=Iterations(seconds=timeline.seconds),
        turns=turns,
        environment=Environment(worker=facts_of(events, 0) or None, driver=driver_facts),
        notes=tuple(_notes(timeline, rows > 1, stale, work_notes, noise)),
        evidence=recorded_evidence(bundle, timeline.rules, evidence),
    )
    return as_record(plain(made))  # whole numbers of what are seconds as floats, as a reader has them


def record_of(bundle: Bundle, is_over: bool = False) -> Record:
    """The record as stored; derived where the driver died before it could, or another version of the suite made it.

    ``is_over``: as its holder knows. Raises DamagedBundle, StillRunning while another holds a run without its record.
    """
    return bundle.record() or derive(bundle, is_over=is_over)


def _ending(timeline: Timeline) -> tuple[Status, Failure | None]:
    """Status and failure: the driver's classification, else the first failure that a rank reported, else unknown.

    A run is ok when the driver and every rank say so, nobody tells a failure and its work is one number. Without the
    driver's end event it was interrupted (the caller knows that no driver holds it). Only an ok run has no failure.
    """
    events, end = timeline.events, timeline.events.of_driver(DriverEnd)
    if end is None or end.status == "interrupted":
        evidence = "the driver was stopped by its user" if end else "the driver ended without writing its end"
        failure = _failure(timeline, events.of_driver(Failed))
        return "interrupted", failure or Failure(kind="interrupted", phase=None, evidence=(evidence,))
    problems = _problems(timeline, end)
    if not problems:
        return "ok", None
    earliest = min(events.of_all(Failed), key=lambda event: (event.time, event.rank), default=None)
    failure = _failure(timeline, events.of_driver(Failed) or earliest)
    return "failed", failure or Failure(kind="unknown", phase=None, evidence=problems)


def _problems(timeline: Timeline, end: DriverEnd) -> tuple[str, ...]:
    """What speaks against an ok end, most telling first."""
    events, told = timeline.events, end.exit_codes
    codes: dict = told if isinstance(told, dict) else dict(enumerate(told))
    problems = [f"work: {timeline.counts_problem}"] if timeline.counts_problem else []
    if end.status == "failed":
        problems.append(f"the driver ended as failed; exit codes by rank: {end.exit_codes}")
    elif bad := {rank: code for rank, code in codes.items() if code}:
        problems.append(f"the driver ended as ok, but ranks did not by their exit codes: {bad}")
    if events.of_driver(Failed) or any(events.of_all(Failed)):
        problems.append("a failure was told")
    for rank in range(timeline.manifest.layout.ranks):
        rank_end = next(iter(events.of(rank, RankEnd)), None)
        if rank_end is None:
            problems.append(f"rank {rank} wrote no end")
        elif rank_end.status != "ok":
            problems.append(f"rank {rank} ended as failed after {rank_end.iterations} iterations")
    more = len(problems) - _MOST_PROBLEMS
    return tuple(problems) if more <= 0 else (*problems[:_MOST_PROBLEMS], f"and {more} more")


def _failure(timeline: Timeline, event: Failed | None) -> Failure | None:
    if event is None:
        return None
    iteration = event.iteration if timeline.rules >= 3 else None
    return Failure(kind=event.failure, phase=event.phase, evidence=tuple(event.evidence), iteration=iteration)


def _run_facts(events: Events, manifest: Manifest) -> RunFacts:
    launch, end = events.of_driver(Launch), events.of_driver(DriverEnd)
    if launch is not None and launch.ranks != manifest.layout.ranks:
        raise DamagedBundle(f"events/driver.jsonl launched {launch.ranks} ranks, not {manifest.layout.ranks}")
    times = [event.time for rank in (events.driver, *events.ranks.values()) for event in rank[:1] + rank[-1:]]
    return RunFacts(
        id=manifest.run.id,
        plan=manifest.run.plan,
        backend=manifest.backend.name,
        backend_kind=manifest.backend.kind,
        size=manifest.size.name,
        ranks=manifest.layout.ranks,
        layout=manifest.layout,
        strategy=_strategy(manifest),
        launcher=None if launch is None else launch.launcher,
        repeat=manifest.run.repeat,
        started=launch.time if launch else min(times, default=None),
        ended=end.time if end else max(times, default=None),
        workload=manifest.workload.name,
        scaling=manifest.workload.scaling,
        track=manifest.track,
        manifest_hash=manifest.hash,
        work_hash=manifest.work_hash,
        device=manifest.measure.device,
        precision=manifest.measure.precision,
    )


def _turns(timeline: Timeline) -> Turns | None:
    """Raises DamagedBundle where manifest and driver differ over whether the run took turns, or with whom."""
    launch, manifest = timeline.events.of_driver(Launch), timeline.manifest
    known = launch.turns if launch else None
    if known is None:
        return None
    if manifest.measure.turns != "iterations" or manifest.run.id not in known.rows:
        rows = " ".join(map(ascii, known.rows))[:200]
        raise DamagedBundle(f"events/driver.jsonl has the run take turns with {rows}, which does not fit its manifest")
    return Turns(start=known.start, rows=tuple(known.rows), begins=timeline.turns, phases=timeline.phase_seconds)


def _notes(
    timeline: Timeline, in_turns: bool, stale: int | None, work_notes: Iterable[str], noise: Noise | None
) -> Iterator[str]:
    events, manifest = timeline.events, timeline.manifest
    yield from events.notes
    if timeline.counts_problem:
        yield f"{NO_WORK}: {timeline.counts_problem}"
    yield from _of_window(timeline, in_turns)
    # rates come from a clock that cannot be set; the times of events may not
    for rank, written in ((None, events.driver), *events.ranks.items()):
        times = [event.time for event in written]
        back = max(map(sub, times, times[1:]), default=0.0)
        if back > _BACK_SECONDS:
            yield f"the clock of {rank_name(rank)} went back by {back:.4g} s"
    yield from not_as_asked(events, manifest)
    versions = sorted({start.suite_version for start in events.of_all(Start)})
    if len(versions) > 1:
        yield f"ranks ran different versions of the suite: {', '.join(versions)}"
    if stale and manifest.layout.placement != "split":
        yield f"ranks tell a staleness of {stale}, although the layout lets every rank generate and train in turn"
    yield from disturbance_notes(events)
    yield from work_notes
    throttling = noise.device_throttling if noise else throttle_reasons(timeline)
    if throttling:
        yield f"clocks were held back by: {', '.join(throttling)}"


def _of_window(timeline: Timeline, in_turns: bool) -> Iterator[str]:
    """Iterations that did less than asked for, because their gradients overflowed, and the clock of all after the
    warm-up against the time between rank 0's events, unless others had their turns in between."""
    skipped, window = timeline.skipped_steps, timeline.window
    if skipped:
        no_rate = ", so there is no rate: give the loss scale more warm-up iterations, or run in bf16"
        yield (
            f"{len(skipped)} of {len(window)} iterations after the warm-up skipped {sum(skipped.values())} "
            f"optimizer steps (overflow at the loss scale) and do not count{'' if timeline.counted else no_rate}"
        )
    if not window or window.start < 1 or in_turns:
        return
    times = [event.time for event in timeline.events.of(0, Iteration)]
    elapsed = times[window.stop - 1] - times[window.start - 1]
    claimed = sum(timeline.seconds[window.start : window.stop])
    if abs(elapsed - claimed) > max(_GAP_SHARE * claimed, _GAP_SECONDS):
        which = "iterations after the warm-up" if skipped else "counted iterations"
        yield f"the {which} add up to {claimed:.4g} s, but {elapsed:.4g} s went by between their events on rank 0"
