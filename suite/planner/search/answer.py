"""The answer to a search: the best arrangements, the front, and the fewest or the cheapest devices for a target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pydantic import Field

from suite.planner.ask import Question, device_counts
from suite.planner.found import Found, Objective, Placing, arrangements
from suite.planner.option import Option, alike, front, label_of, options
from suite.planner.plan import NOT_RUN, not_to_be_run, passes_text, stack_notes
from suite.planner.search.wishes import DEVICE_HOURS_OF_A_FAILURE, Pauses, Prices, Target, Week, week_of
from suite.spec.base import Frozen, UsageError
from suite.spec.workload import Workload


class Kind(Frozen):
    """One kind of device: the fewest that reach the target, or the nearest that comes to it."""

    device: str
    reached: bool
    best: Option | None = Field(description="null where no arrangement fits on any number of devices")
    sure: Option | None = Field(description="the fewest whose rate reaches the target at the low end of its band")


class Answer(Frozen):
    """What was looked at and what came of it; ``options`` best first."""

    size: str
    workload: str
    work: Workload = Field(description="the work that is planned, its samples in all")
    objective: Objective
    placement: Placing
    most_staleness: int
    target: str | None
    target_samples_per_second: float | None
    considered: int
    fitting: int
    options: list[Option]
    front: list[Option]
    kinds: list[Kind] = Field(default=[], description="of devices, under a target")
    nearest: Option | None = Field(default=None, description="where nothing fits, what lacks least memory")
    week: Week | None = Field(description="of the best; null where its checkpoints and restarts are not known")
    prices: str
    assumed: list[str]
    notes: list[str]

    @property
    def met(self) -> bool:
        """Whether there is an answer: something fits, and reaches the target where there is one."""
        return any(kind.reached for kind in self.kinds) if self.target else bool(self.options)


@dataclass(frozen=True)
class Search:
    """What is asked, on every device and backend. ``questions`` differ in these alone."""

    questions: Sequence[Question]
    work: Workload
    placing: Placing
    staleness: int
    objective: Objective
    prices: Prices
    notes: Sequence[str] = ()
    pauses: Pauses | None = None

    def found(self, asked: Question, devices: Sequence[int]) -> Found:
        """Everything on each number of devices."""
        return arrangements(replace(asked, workload=self.work), devices, self.placing, self.staleness)

    def on_first_device(self, work: Workload, devices: Sequence[int]) -> list[Found]:
        """Everything on the first kind of device, by each backend, of other work."""
        own, first = replace(self, work=work), self.questions[0].hardware.name
        return [own.found(asked, devices) for asked in self.questions if asked.hardware.name == first]

    def question_of(self, option: Option) -> Question:
        """The question that an option answers."""
        named = {(asked.hardware.name, asked.profile.name): asked for asked in self.questions}
        return named[option.device, option.backend]


def best_on(search: Search, devices: Sequence[int], most: int) -> Answer:
    """The best arrangements on these numbers of devices, and the front over all smaller numbers."""
    considered = fitting = 0
    best: list[Option] = []
    fastest: list[Option] = []
    closest: list[Option] = []
    for asked in search.questions:
        price = search.prices.of(asked.hardware.name)
        found = search.found(asked, sorted({*devices, *device_counts(max(devices))}))
        considered, fitting = considered + len(found), fitting + int(found.told.fits.sum())
        order = [index for index in found.ranked(search.objective) if int(found.devices[index]) in devices]
        best += options(found, alike(found, order, most), price)
        fastest += options(found, [[index] for index in found.fastest_by_count()], price)
        if len(found) and not found.told.fits.any():
            closest += options(found, [[int(found.told.memory.total.argmin())]], price)
    best.sort(key=lambda option: _measure(option, search.objective))
    nearest = None if best else min(closest, key=lambda option: option.memory_bytes, default=None)
    return _answer(search, best[:most], considered=considered, fitting=fitting, front=front(fastest), nearest=nearest)


def fewest_for(search: Search, target: Target, limit: int) -> Answer:
    """Of each kind of device the fewest that reach the target, up to ``limit`` devices; first what was asked for."""
    if search.objective == "cost" and all(search.prices.of(asked.hardware.name) is None for asked in search.questions):
        raise UsageError(
            "the cheapest devices are asked for, but no price is known: --price H100-SXM-80GB=2.10 for each"
        )
    considered = fitting = 0
    kinds: dict[str, list[Kind]] = {}
    every: list[Option] = []
    for asked in search.questions:
        looked, fits, one, all_of_them = _kind(search, asked, target, limit)
        considered, fitting = considered + looked, fitting + fits
        kinds.setdefault(asked.hardware.name, []).append(one)
        every += all_of_them
    best = [min(found, key=lambda kind: _kind_measure(kind, search.objective)) for found in kinds.values()]
    best.sort(key=lambda kind: _kind_measure(kind, search.objective))
    answered = [kind.best for kind in best if kind.reached and kind.best]
    return _answer(search, answered, target, considered=considered, fitting=fitting, front=front(every), kinds=best)


def _kind(search: Search, asked: Question, target: Target, limit: int) -> tuple[int, int, Kind, list[Option]]:
    """Numbers of devices are looked at from the fewest on, until the target is reached also at the band's low end."""
    looked = fits = 0
    best: Option | None = None
    sure: Option | None = None
    passed: list[Option] = []
    reached = False
    for counts in _blocks(limit):
        found = search.found(asked, counts)
        looked, fits = looked + len(found), fits + int(found.told.fits.sum())
        for index in found.fastest_by_count():
            rate = float(found.rate[index])
            enough = rate >= target.samples_per_second
            better = best is None or rate > best.samples_per_second
            if not better and not enough:
                continue
            (option,) = options(found, [[index]], search.prices.of(asked.hardware.name))
            passed.append(option)
            best = option if not reached and better else best
            reached = reached or enough
            if option.low >= target.samples_per_second:
                sure = option
                break
        if sure:
            break
    return looked, fits, Kind(device=asked.hardware.name, reached=reached, best=best, sure=sure), passed


def _blocks(limit: int) -> list[list[int]]:
    """Numbers of devices in turns, so that a small answer does not wait for the largest."""
    counts = sorted({*device_counts(limit), limit})
    blocks = [[count for count in counts if low < count <= high] for low, high in pairwise((0, 16, 128, 1024, limit))]
    return [block for block in blocks if block]


def _measure(option: Option, objective: Objective) -> float:
    return {
        "throughput": -option.samples_per_second,
        "cost": option.cost_per_1000_samples or option.devices / option.samples_per_second,
        "latency": option.seconds,
    }[objective]


def _kind_measure(kind: Kind, objective: Objective) -> tuple[float, ...]:
    """Kinds that reach the target first: by cost where that is asked for, else by number of devices."""
    best = kind.best
    if best is None:
        return (2.0, 0.0, 0.0)
    if not kind.reached:
        return (1.0, -best.samples_per_second, 0.0)
    if objective == "cost":
        return (0.0, best.cost_per_hour if best.cost_per_hour is not None else float("inf"), float(best.devices))
    return (0.0, float(best.devices), -best.samples_per_second)


def _answer(search: Search, best: list[Option], target: Target | None = None, **found: Any) -> Answer:
    """``found``: the other fields of an answer."""
    asked = search.question_of(best[0]) if best else None
    notes = [NOT_RUN, *stack_notes(asked), *not_to_be_run(asked, best[0])] if asked else [NOT_RUN]
    return Answer(
        size=search.questions[0].shape.name,
        workload=search.work.name,
        work=search.work,
        objective=search.objective,
        placement=search.placing,
        most_staleness=search.staleness,
        target=target.text if target else None,
        target_samples_per_second=target.samples_per_second if target else None,
        options=best,
        week=week_of(best[0], search.pauses) if best and search.pauses else None,
        prices=search.prices.text,
        assumed=assumed(search, best),
        notes=[*search.notes, *notes],
        **found,
    )


def assumed(search: Search, best: Sequence[Option]) -> list[str]:
    """What is taken for granted of the work, of the engine and of the machines."""
    manner, lines = search.questions[0].manner, []
    if search.work.uneven:
        lines.append(passes_text(manner))
    if manner.generation == "vllm":
        if search.work.group > 1:
            lines.append(f"an engine computes the prompt of a group of {search.work.group} samples once")
        if search.placing != "split":
            lines.append("colocated engines sleep while the policy trains; waking them is part of weight sync")
        if search.placing != "colocated":
            lines.append(
                f"split: samples are at most {search.staleness} publication{'s' if search.staleness != 1 else ''} of "
                "weights old; they are broadcast whole to every engine, while both sides wait"
            )
    left_out = "evaluation is" if search.pauses else "start-up, checkpoints, evaluation and failures are"
    asked = search.questions[0]
    taken = f"a sample's reward takes {asked.reward:g} s, one by one, its tools {asked.tools:g} s while others decode"
    taken = taken if asked.reward or asked.tools else "rewards and tools take no time"
    lines.append(f"{taken}; {left_out} left out of rates")
    if best and not search.pauses:
        days = DEVICE_HOURS_OF_A_FAILURE / best[0].devices / 24
        lines.append(
            f"failures of so many devices are {days:.3g} days apart, where they are as rare as Llama 3's: --checkpoint "
            "and --restart say what is left of a week"
        )
    return lines


def found_again(search: Search, option: Option) -> tuple[Found, int]:
    """The columns that an option was taken from, and its place."""
    found = search.found(search.question_of(option), [option.devices])
    for index in found.ranked(search.objective).tolist():
        micro = int(found.space.choices["micro_batch"][found.pairs.t[index]])
        if micro == option.micro_batch and label_of(found, index) == option.label:
            return found, index
    raise AssertionError("the option is of this search")
