"""From what a user gives to a search: the preset's work or their own, devices, backends, placement, wishes; and what
would change its answer: longer responses, slower links, prices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import Field

from suite.planner.ask import MOST_DEVICES, Question, checked_counts, engine_manner, standing
from suite.planner.curves import fixed
from suite.planner.found import Objective, Placing
from suite.planner.hardware import Hardware
from suite.planner.lengths import drawn
from suite.planner.option import Option
from suite.planner.search.answer import Answer, Search, best_on, fewest_for
from suite.planner.search.wishes import Pauses, Prices, device_kinds, target_of
from suite.planner.space import Manner
from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import Preset, PresetPoint, find_preset, find_size, find_workload
from suite.spec.shape import Shape
from suite.spec.shape_file import load_shape
from suite.spec.typed import shown
from suite.spec.workload import Workload

USUAL_DEVICES = 8
#: Publications of weights that samples may be behind; what is further behind is predicted to be no faster.
MOST_STALENESS = 1


@dataclass(frozen=True)
class Wishes:
    """How to search: ``None`` and empty where nothing was given."""

    placement: str | None = None
    staleness: int | None = None
    target: str | None = None
    deadline: str | None = None
    iterations: int | None = None
    devices: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    objective: Objective = "throughput"
    prices: Prices = field(default_factory=lambda: Prices(None, {}))
    top: int = 8
    pauses: Pauses | None = None
    generation_device: str | None = None

    @property
    def any(self) -> bool:
        """Whether anything is asked that the plain list of layouts does not answer."""
        given = (self.placement, self.staleness, self.target, self.deadline, self.iterations)
        more = (self.pauses, self.generation_device)
        return any(one is not None for one in (*given, *more)) or len(self.kinds) > 1 or "any" in self.kinds


def preset_of(name: str, size: str | None) -> tuple[Preset, PresetPoint]:
    """A preset and its point of this size, or its only one. UsageError where there is none or several."""
    preset = find_preset(name)
    points = {point.size.lower(): point for point in preset.points}
    if size is None and len(points) == 1:
        return preset, preset.points[0]
    found = points.get((size or "").lower())
    if found is None:
        known = ", ".join(point.size for point in preset.points)
        what = "has several sizes" if size is None else f"has no size {shown(size)}"
        raise UsageError(f"preset {preset.name} {what}: --size is one of {known}")
    return preset, found


def manner_of(
    generation: str | None, usual: str, engine_sleep: bool, packing: bool, balance: bool, point: PresetPoint | None
) -> Manner:
    """How samples are generated and passed: as the preset does, with what is given besides. UsageError for what does
    not go together."""
    if generation not in (None, "hf", "vllm"):
        raise UsageError(f"--generation is hf or vllm, not {generation!r}")
    chosen = generation or usual
    if engine_sleep and chosen == "hf":
        raise UsageError("only an engine of its own sleeps while the policy trains: --generation vllm")
    given = Manner("vllm" if chosen == "vllm" else "hf", engine_sleep, packing, balance)
    if point is None:
        return given
    own = Manner(**{name: point.layout[name] for name in vars(given) if name in point.layout})
    if generation is not None:
        own = replace(own, generation=given.generation, engine_sleep=engine_sleep)
    return replace(own, packing=packing or own.packing, balance=balance or own.balance)


def checked_manner(manner: Manner, wishes: Wishes, generation: str | None) -> tuple[Manner, Placing, int]:
    """The manner, placement and staleness that are searched. UsageError for wishes that contradict each other."""
    usual = "split" if wishes.generation_device else "auto"
    placing, staleness = wishes.placement or usual, wishes.staleness
    if placing != "split" and wishes.generation_device:
        raise UsageError("--generation-device names devices of their own that generate: --placement split")
    if placing not in ("auto", "colocated", "split"):
        raise UsageError(f"--placement is auto, colocated or split, not {shown(placing)}")
    if staleness is not None and not 0 <= staleness <= MOST_STALENESS:
        raise UsageError(
            f"--staleness is 0 to {MOST_STALENESS}, not {staleness}: further behind nothing is predicted to be faster"
        )
    if placing == "split" and manner.generation == "hf":
        raise UsageError(
            "--placement split puts engines on devices of their own, and the stack's own loop (hf) has none: "
            "--generation vllm, or --placement colocated"
        )
    if placing == "split" and manner.engine_sleep and generation is not None:
        raise UsageError(
            "an engine on devices of its own never sleeps: leave --engine-sleep out, or --placement colocated"
        )
    if placing == "colocated" and staleness:
        raise UsageError(
            "on the same devices one side waits for the other, so no sample grows stale: --placement split or auto, or "
            "--staleness 0"
        )
    chosen: Placing = "colocated" if placing == "colocated" or manner.generation == "hf" else placing  # type: ignore[assignment]
    age = 0 if chosen == "colocated" else 1 if staleness is None else staleness
    return replace(manner, engine_sleep=manner.generation == "vllm"), chosen, age


def make_search(questions: Sequence[Question], samples_on: int, wishes: Wishes, generation: str | None) -> Search:
    """The search, from one question for each backend. ``samples_on``: of how many devices its samples are."""
    checked_counts(wishes.devices)
    asked = questions[0]
    manner, placing, staleness = checked_manner(asked.manner, wishes, generation)
    work = fixed(asked.workload, samples_on)
    if work.rollouts % work.group:
        raise UsageError(f"{work.rollouts:,} samples are no whole groups of {work.group}: change --rollouts or --group")
    kinds, notes = device_kinds(wishes.kinds)
    base = [replace(each, manner=engine_manner(each.profile, manner), workload=work) for each in questions]
    asked_ones = [
        replace(each, hardware=standing(kind, each.cluster, each.profile.fp8)[0], notes=())
        for kind in kinds
        for each in base
    ]
    if wishes.generation_device:
        asked_ones = [_with_other(each, wishes.generation_device, wishes.prices) for each in asked_ones]
    return Search(asked_ones, work, placing, staleness, wishes.objective, wishes.prices, notes, wishes.pauses)


def _with_other(asked: Question, name: str, prices: Prices) -> Question:
    """The same question where devices of this name generate. UsageError where one price is known and one is not."""
    other, _ = standing(name, asked.cluster, asked.profile.fp8)
    own, its = prices.of(asked.hardware.name), prices.of(other.name)
    if (own is None) != (its is None):
        raise UsageError(f"--price is needed of both kinds, {asked.hardware.name} and {other.name}, or of none")
    return replace(asked, other=other, other_price=1.0 if own is None or its is None else its / own)


def answer(search: Search, wishes: Wishes) -> Answer:
    """What was wished for."""
    tokens = drawn(search.work, search.work.rollouts).mean
    goal = target_of(wishes.target, wishes.deadline, wishes.iterations, search.work.rollouts, tokens)
    if goal is None:
        return best_on(search, list(wishes.devices) or [USUAL_DEVICES], wishes.top)
    return fewest_for(search, goal, max(wishes.devices, default=MOST_DEVICES))


class Change(Frozen):
    """The answer where one thing is otherwise."""

    what: str
    best: Option | None = Field(description="the best arrangement then; null where nothing is enough")
    text: str


def sensitivity(search: Search, wishes: Wishes, found: Answer) -> list[Change]:
    """The answer to the same wishes where responses double, as they may while a policy learns; where links and network
    cards give half their rate; and at which price another kind of device would be cheaper."""
    now = found.options[0] if found.options else None
    what, longer = "responses twice as long", _with_longer_responses(search.work)
    if longer.sequence_tokens > search.questions[0].shape.positions:
        text = f"a sample would have {longer.sequence_tokens:,} tokens, more than the model has positions"
        changes = [Change(what=what, best=None, text=text)]
    else:
        changes = [_change(what, answer(replace(search, work=longer), wishes), now)]
    slower = [
        replace(asked, hardware=_slower(asked.hardware), other=asked.other and _slower(asked.other))
        for asked in search.questions
    ]
    links = answer(replace(search, questions=slower), wishes)
    changes.append(_change("links and network at half their rate", links, now))
    return [*changes, *_prices(found)]


def _slower(hardware: Hardware) -> Hardware:
    return replace(hardware, network=hardware.network / 2, link=hardware.link / 2)


def _with_longer_responses(work: Workload) -> Workload:
    """Twice the tokens of each response; of a distribution its mean and cap, of listed lengths each."""
    lengths = work.lengths
    if lengths is None:
        return work.model_copy(update={"new_tokens": 2 * work.new_tokens})
    doubled = {name: 2 * value for name in ("tokens", "mean", "cap") if (value := getattr(lengths, name))}
    doubled["listed"] = lengths.listed and tuple(2 * length for length in lengths.listed)
    return work.model_copy(update={"lengths": lengths.model_copy(update=doubled)})


def _change(what: str, then: Answer, now: Option | None) -> Change:
    if not then.options:
        return Change(what=what, best=None, text="nothing that was looked at is enough")
    best = then.options[0]
    before = "" if now is None or now.devices == best.devices else f" in place of {now.devices:,}"
    same = now is not None and (now.device, now.devices, now.label) == (best.device, best.devices, best.label)
    arrangement = "the same" if same else f"{best.devices:,} x {best.device}{before}, {best.label} ({best.backend})"
    return Change(what=what, best=best, text=f"{arrangement}, predicted {best.samples_per_second:.3g} samples/s")


def _prices(found: Answer) -> Iterator[Change]:
    """Where the cheapest is asked for, and a second kind reaches the target."""
    reached = [kind.best for kind in found.kinds if kind.reached and kind.best and kind.best.cost_per_hour]
    if found.objective != "cost" or len(reached) < 2:
        return
    first, second = reached[:2]
    ratio = (second.cost_per_hour or 0.0) / (first.cost_per_hour or 1.0)
    text = f"{second.device} is cheaper once {first.device} costs {ratio:.2f} times its price"
    yield Change(what="prices", best=second, text=text)


def model_of(size: str | None, shape: Path | None, preset: PresetPoint | None) -> Shape:
    """The shape that is named. UsageError where none or two are."""
    if preset is not None:
        if shape is not None:
            raise UsageError("a preset has its own sizes: leave --shape or --preset out")
        return find_size(preset.size)
    if (size is None) == (shape is None):
        raise UsageError("name one model: --size (see `suite sizes`), --shape FILE or --preset")
    return load_shape(shape) if shape is not None else find_size(size or "")


def work_of(
    workload: str | None, preset: Preset | None, point: PresetPoint | None, model: Shape, searched: bool
) -> Workload:
    """The work that is named, or the preset's. Else GRPO where engines are searched, if the model has the positions."""
    if workload is not None:
        return find_workload(workload)
    if preset is not None and point is not None:
        return preset.work_of(point)
    usual = find_workload("grpo")
    return usual if searched and usual.sequence_tokens <= model.positions else find_workload("trlx-ds-chat")
