"""From a bundle's manifest, environment and events to its record, and from nothing else."""

from operator import sub

from suite.bundle.ending import ending
from suite.bundle.energy import energy, throttle_notes
from suite.bundle.event_fields import DriverEnd, Event, Iteration, Launch, Start
from suite.bundle.event_lines import rank_name
from suite.bundle.events import Events
from suite.bundle.evidence import recorded_evidence
from suite.bundle.fact_checks import not_as_asked
from suite.bundle.facts import disturbance_notes, facts_of
from suite.bundle.files import DamagedBundle
from suite.bundle.peaks import memory
from suite.bundle.per_manifest import once_per_manifest
from suite.bundle.rates import details, phase_intervals, phases, steadiness, throughput, waits
from suite.bundle.record import Environment, Evidence, Iterations, Record, RunFacts, Turns
from suite.bundle.rollout import padding, realised_lengths, rollout, staleness, staleness_notes
from suite.bundle.sides import overlap, training_side, with_sides_compared
from suite.bundle.store import Bundle, OtherSchema, StillRunning
from suite.bundle.timeline import Timeline, make_timeline
from suite.bundle.utilisation import compute, impossible_figures
from suite.bundle.validity import noise_and_validity
from suite.spec.algorithms import PPO_NAME
from suite.spec.manifest import Manifest

#: Time between the counted iterations beyond their own that is worth a word: a share of them, and seconds.
_GAP_SHARE, _GAP_SECONDS = 0.05, 0.1
#: A clock that is set is worth a word from here on; its slewing is not.
_BACK_SECONDS = 1.0


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
    training = training_side(events, manifest)
    timeline = with_sides_compared(events, make_timeline(training, manifest), manifest)
    ranks = manifest.layout.ranks
    status, failure = ending(events, timeline, manifest)
    shares, stale = phases(timeline), staleness(events, timeline)
    algorithm = manifest.workload.algorithm
    work, work_notes = compute(events, timeline, shares, manifest)
    turns = _turns(events, timeline, manifest)
    rows = 1 if turns is None else len(turns.rows)
    peaks = memory(training, timeline.counted, manifest)
    cannot_be = impossible_figures(events, work, shares, peaks, manifest)
    noise, validity = noise_and_validity(events, training, timeline, manifest, work, cannot_be, rows)
    return Record(
        run=_run_facts(events, manifest),
        status=status,
        failure=failure,
        counts=timeline.counts,
        throughput=throughput(events, timeline, ranks),
        phases=shares,
        details=details(training, timeline.counted),
        phase_intervals=phase_intervals(training, timeline),
        waits=waits(training, timeline),
        void_iterations=timeline.void,
        algorithm=None if algorithm.name == PPO_NAME else algorithm.text(),  # records of PPO stay as they were
        lengths=realised_lengths(manifest),
        padding=padding(manifest, timeline.counts),
        rollout=rollout(events, timeline, manifest),
        staleness=stale,
        overlap=overlap(events, timeline, manifest),
        memory=peaks,
        compute=work,
        energy=energy(events, timeline, manifest),
        steady_state=steadiness(events, timeline, manifest.measure.warmup),
        noise=noise,
        validity=validity,
        iterations=Iterations(seconds=timeline.seconds),
        turns=turns,
        environment=Environment(worker=facts_of(events, 0) or None, driver=driver_facts),
        notes=(
            *events.notes,
            *([f"no rate without its work: {timeline.counts_problem}"] if timeline.counts_problem else []),
            *_void_notes(timeline),
            *_gap_notes(events, timeline, rows > 1),
            *_clock_notes(events),
            *not_as_asked(events, manifest),
            *_version_notes(events),
            *staleness_notes(stale, manifest),
            *disturbance_notes(events),
            *work_notes,
            *throttle_notes(events, timeline),
        ),
        evidence=recorded_evidence(bundle, events, evidence),
    )


def record_of(bundle: Bundle, is_over: bool = False) -> Record:
    """The record as stored; derived where the driver died before it could, or another version of the suite made it.

    ``is_over``: as its holder knows. Raises DamagedBundle, StillRunning while another holds a run without its record.
    """
    try:
        return bundle.record() or derive(bundle, is_over=is_over)
    except OtherSchema:
        return derive(bundle, is_over=is_over)


def _run_facts(events: Events, manifest: Manifest) -> RunFacts:
    launch, end = events.of_driver(Launch), events.of_driver(DriverEnd)
    if launch is not None and launch.ranks != manifest.layout.ranks:
        raise DamagedBundle(
            f"events/driver.jsonl launched {launch.ranks} ranks, the manifest has {manifest.layout.ranks}"
        )
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


def _turns(events: Events, timeline: Timeline, manifest: Manifest) -> Turns | None:
    """Raises DamagedBundle where manifest and driver differ over whether the run took turns, or with whom."""
    launch = events.of_driver(Launch)
    known = launch.turns if launch else None
    is_asked = manifest.measure.turns == "iterations"
    if known is None:
        return None
    if not is_asked or manifest.run.id not in known.rows:
        raise DamagedBundle(
            f"events/driver.jsonl has the run take turns with {' '.join(map(ascii, known.rows))[:200]}, but it "
            + ("is not among them" if is_asked else "was to be alone")
        )
    return Turns(start=known.start, rows=tuple(known.rows), begins=timeline.turns, phases=timeline.phase_seconds)


@once_per_manifest
def _strategy(manifest: Manifest) -> str:
    return manifest.layout.strategy()


def _void_notes(timeline: Timeline) -> tuple[str, ...]:
    """Iterations that did less than asked for, because their gradients overflowed."""
    skipped = timeline.skipped_steps
    if not skipped:
        return ()
    known = (
        f"{len(skipped)} of {len(timeline.window)} iterations after the warm-up skipped {sum(skipped.values())} "
        "optimizer steps (overflow at the loss scale) and do not count"
    )
    if timeline.counted:
        return (known,)
    return (f"{known}, so there is no rate: give the loss scale more warm-up iterations, or run in bf16",)


def _gap_notes(events: Events, timeline: Timeline, in_turns: bool) -> tuple[str, ...]:
    """Check the clock of the iterations after the warm-up against the time between rank 0's iteration events, unless
    others had their turns in between."""
    window = timeline.window
    if not window or window.start < 1 or in_turns:
        return ()
    times = [event.time for event in events.of(0, Iteration)]
    elapsed = times[window.stop - 1] - times[window.start - 1]
    claimed = sum(timeline.seconds[window.start : window.stop])
    if abs(elapsed - claimed) <= max(_GAP_SHARE * claimed, _GAP_SECONDS):
        return ()
    which = "iterations after the warm-up" if timeline.skipped_steps else "counted iterations"
    return (f"the {which} add up to {claimed:.4g} s, but {elapsed:.4g} s went by between their events on rank 0",)


def _clock_notes(events: Events) -> tuple[str, ...]:
    """Rates come from a clock that cannot be set; the times of events may not."""
    writers: list[tuple[int | None, tuple[Event, ...]]] = [(None, events.driver), *events.ranks.items()]
    notes = []
    for rank, written in writers:
        times = [event.time for event in written]
        back = max(map(sub, times, times[1:]), default=0.0)
        if back > _BACK_SECONDS:
            notes.append(f"the clock of {rank_name(rank)} went back by {back:.4g} s")
    return tuple(notes)


def _version_notes(events: Events) -> tuple[str, ...]:
    versions = sorted({start.suite_version for start in events.of_all(Start)})
    return (f"ranks ran different versions of the suite: {', '.join(versions)}",) if len(versions) > 1 else ()
