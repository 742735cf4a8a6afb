"""From an imported log, and what was told of it, to its record: pure, and so the same whenever it is derived again."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add, mul, sub

from pydantic import ValidationError

from suite.bundle.files import DamagedBundle, first_line
from suite.bundle.imported import record
from suite.bundle.imported.record import TOLD, Import, ImportedRecord, Source
from suite.bundle.imported.steps import Log, Step, read_steps
from suite.bundle.imported.timers import ASIDE, NAMES, Names
from suite.bundle.parts import MOST_COUNT, MOST_SECONDS
from suite.spec.phases import REMAINDER, TIMED_NAMES

#: Timers are read one after the other and printed with two or three digits.
_SLACK_SHARE, _SLACK_SECONDS = 0.01, 0.05
#: A log's means are rounded, so that a count made of them is nearly a whole number; what is told may differ as much.
_NEAR = 0.005
_GIB, _NAMED = 1 << 30, 8
_LOG: Source = "the log"
_COMPUTED: Source = "computed from the log"
_Combine = Callable[[float, float], float | None]


@dataclass(frozen=True)
class _Known:
    """A figure of each counted step, and where it is from."""

    values: list[float]
    source: Source


def derive(identity: str, asked: Import, data: bytes) -> ImportedRecord:
    """The record of a log. Raises DamagedBundle for a log without steps, or one that is at odds with what was told."""
    read, names = read_steps(data, asked.tool), NAMES[asked.tool]
    seconds = [_seconds(step, names.whole, names) for step in read.steps]
    counted = read.steps[asked.warmup :]
    if not counted:
        raise DamagedBundle(f"the log has {len(read.steps)} steps, and {asked.warmup} are left out as a warm-up")
    elapsed = math.fsum(seconds[asked.warmup :])
    counts, work = _counts(counted, names, asked.told)
    tokens = _rate(work["total_tokens"], elapsed)
    try:
        phases, overlapping = _phases(counted, names, elapsed)
        return ImportedRecord(
            id=identity,
            tool=asked.tool,
            form=read.form,
            told=asked.told,
            log=asked.log,
            steps=record.Steps(
                found=len(read.steps),
                warmup=asked.warmup,
                counted=len(counted),
                first=counted[0].number,
                last=counted[-1].number,
            ),
            step_seconds=elapsed / len(counted),
            seconds=tuple(seconds),
            phases=phases,
            counts=counts,
            throughput=record.ImportedThroughput(
                samples_per_second=_rate(work["samples"], elapsed),
                tokens_per_second=tokens,
                tokens_per_second_per_device=None if tokens is None else tokens / asked.told.devices,
            ),
            memory=_memory(counted, names),
            notes=tuple(_notes(read, counted, names, overlapping)),
        )
    except ValidationError as error:
        raise DamagedBundle(f"the log tells what no run can: {first_line(error)}") from error


def _seconds(step: Step, name: str, names: Names) -> float:
    seconds = step.values[name]
    if not 0 <= seconds <= MOST_SECONDS or (seconds == 0 and name == names.whole):
        raise DamagedBundle(f"step {step.number} of the log took {seconds:g} s in {name}")
    return seconds


def _rate(work: _Known | None, seconds: float) -> float | None:
    return None if work is None else math.fsum(work.values) / seconds


def _phases(counted: Sequence[Step], names: Names, elapsed: float) -> tuple[dict[str, record.ImportedPhase], bool]:
    """By name in the order of an iteration, and whether the timers overlap, so that there are no shares."""
    totals: dict[str, float] = defaultdict(float)
    steps: Counter[str] = Counter()
    for step in counted:
        of_step: dict[str, float] = defaultdict(float)
        for name in step.values:
            phase = names.timers.get(name)
            if phase in TIMED_NAMES:
                of_step[phase] += _seconds(step, name, names)
        for phase, seconds in of_step.items():
            totals[phase] += seconds
        steps.update(of_step.keys())
    known = math.fsum(totals.values())
    overlapping = known > elapsed * (1 + _SLACK_SHARE) + _SLACK_SECONDS * len(counted)
    found = {
        phase: record.ImportedPhase(
            seconds=totals[phase] / steps[phase],
            share=None if overlapping or steps[phase] < len(counted) else min(1.0, totals[phase] / elapsed),
        )
        for phase in TIMED_NAMES
        if phase in totals
    }
    if found and not overlapping:
        rest = max(0.0, elapsed - known)
        found[REMAINDER.name] = record.ImportedPhase(seconds=rest / len(counted), share=rest / elapsed)
    return found, overlapping


def _counts(
    counted: Sequence[Step], names: Names, given: record.Told
) -> tuple[record.ImportedCounts, dict[str, _Known | None]]:
    """Means, and each step's; what the log tells goes before what was told, which must not contradict it."""
    count = len(counted)
    prompt = _either(_logged(counted, (names.prompt_mean,)), given.prompt_tokens, count, "--prompt-tokens")
    response = _either(_logged(counted, names.response_mean), given.response_tokens, count, "--response-tokens")
    samples = _either(_logged(counted, names.samples, _quotient), given.samples, count, "--samples")
    total = _logged(counted, (names.total_tokens,))
    if samples is None:
        # as many as make the tokens of a step, each of the mean length that the log tells
        made = _of_both(total, _of_both(prompt, response, add), _quotient)
        samples = made if made is not None and made.source != TOLD else None
    prompts, responses = _of_both(samples, prompt, mul), _of_both(samples, response, mul)
    work = {
        "samples": samples,
        "prompt_tokens": prompts,
        "response_tokens": responses,
        "total_tokens": total or _of_both(prompts, responses, add),
    }
    means = {name: None if each is None else math.fsum(each.values) / count for name, each in work.items()}
    for name, mean in means.items():
        if mean is not None and not 0 < mean <= MOST_COUNT:
            raise DamagedBundle(f"the log tells {mean:g} {name.replace('_', ' ')} a step")
    sources = {name: each.source for name, each in work.items() if each is not None}
    return record.ImportedCounts(**means, sources=sources), work


def _logged(counted: Sequence[Step], names: Sequence[str], combine: _Combine = sub) -> _Known | None:
    """Of every counted step, as it is logged under one name or made of two; null where a step lacks one."""
    if not names or any(name not in step.values for step in counted for name in names):
        return None
    known = [_Known([step.values[name] for step in counted], _LOG) for name in names]
    return _of_both(known[0], known[1], combine) if len(known) > 1 else known[0]


def _quotient(above: float, below: float) -> float | None:
    """Null where it is no whole number."""
    value = above / below if below > 0 else 0.0
    if not 0.5 <= value <= MOST_COUNT or abs(value - round(value)) > _NEAR * value:
        return None
    return float(round(value))


def _either(logged: _Known | None, known: float | None, count: int, option: str) -> _Known | None:
    """What the log tells, else what the importer does. Raises DamagedBundle where both do, and differ."""
    if logged is None:
        return None if known is None else _Known([float(known)] * count, TOLD)
    mean = math.fsum(logged.values) / len(logged.values)
    if known is not None and abs(known - mean) > _NEAR * abs(mean):
        raise DamagedBundle(f"{option} {known:g} is not what the log tells, which is {mean:g}")
    return logged


def _of_both(one: _Known | None, other: _Known | None, operation: _Combine) -> _Known | None:
    """Step by step, null where a step has none; what was told by somebody makes it no better."""
    if one is None or other is None:
        return None
    made = [value for value in map(operation, one.values, other.values) if value is not None]
    source = TOLD if TOLD in (one.source, other.source) else _COMPUTED
    return _Known(made, source) if len(made) == len(one.values) else None


def _memory(counted: Sequence[Step], names: Names) -> record.ImportedMemory:
    told = [(names.peak_of(name), value) for step in counted for name, value in step.values.items()]
    peaks = {
        field: max((value for peak, value in told if peak == field), default=0.0)
        for field in record.ImportedMemory.model_fields
    }
    return record.ImportedMemory(**{field: round(peak * _GIB) if peak > 0 else None for field, peak in peaks.items()})


def _notes(read: Log, counted: Sequence[Step], names: Names, overlapping: bool) -> Iterator[str]:
    yield from read.notes
    between = counted[-1].number - counted[0].number + 1 - len(counted)
    if between:
        yield f"{between} steps between the first and the last counted one are not in the log"
    if overlapping:
        yield "the timers of phases add up to more than the steps: they overlap, so that no phase has a share"
    timers = sorted({name for step in counted for name in step.values if name.startswith(names.prefix)})
    for name in timers:
        seconds = math.fsum(step.values.get(name, 0.0) for step in counted)
        if names.phase_of(name) == ASIDE and seconds > 0:
            yield f"the counted steps hold {seconds:.4g} s of {name}, which is no part of the work"
    unknown = [ascii(name)[1:-1] for name in timers if names.phase_of(name) is None]
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        shown = ", ".join(unknown[:_NAMED])
        yield f"timers of which nothing is known here, and which are in no phase: {shown}{more}"
