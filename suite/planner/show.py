"""Plans and answers to searches as text for a terminal."""

from collections.abc import Iterator, Sequence

from suite.planner.ask import Question
from suite.planner.curves import CurvePoint
from suite.planner.memory import GIB
from suite.planner.option import Option
from suite.planner.plan import Plan
from suite.planner.search.answer import Answer, Kind
from suite.planner.search.request import Change
from suite.planner.table import curve_lines, host_gib, marks, memory_bars, money_cell, option_columns
from suite.spec.algorithms import PPO_NAME
from suite.spec.grid import Column, grid_lines
from suite.spec.width import wrapped
from suite.spec.workload import Workload

_BARS = 4
#: Rows of the table of those that nothing beats: the fastest, and what is next to it.
_FRONT = 3
_NOTHING_DIVIDES = (
    "nothing divides the model and the work on so many devices: other numbers of --devices or --rollouts do"
)


def plan_lines(plan: Plan, columns: int | None = None) -> Iterator[str]:
    """The work, the options, their memory as bars, and what would be better but does not fit.

    No line is longer than ``columns``, broken at words; ``None``: as long as it comes.
    """
    for line in _plan_lines(plan, columns):
        yield from text_lines(line, columns)


def answer_lines(answer: Answer, columns: int | None = None) -> Iterator[str]:
    """The answer in words, what it rests on, the tables, the notes; no line longer than ``columns``."""
    for line in _answer_lines(answer, columns):
        yield from text_lines(line, columns)


def sensitivity_lines(changes: Sequence[Change], columns: int | None) -> Iterator[str]:
    """What would change the answer, a line or two for each thing."""
    yield from ("", "what would change it:")
    for change in changes:
        yield from text_lines(f"  {change.what}: {change.text}", columns)


def curves_lines(
    asked: Question, made: dict[str, list[CurvePoint]], counts: Sequence[int], columns: int | None
) -> Iterator[str]:
    """Scaling curves by backend, or of the best of them, below what they are of."""
    weak = asked.workload.model_copy(update={"scaling": "weak"})
    for name, points in made.items():
        for line in (
            f"{asked.shape.name} on {points[0].device}, {name}: weak scaling keeps the samples of a device, strong "
            f"scaling those of {counts[0]:,} in all",
            f"one iteration: {work_text(weak, counts[:1])}",
            *(f"note: {note}" for note in asked.notes),
        ):
            yield from text_lines(line, columns)
        yield from curve_lines(points, columns)


def text_lines(line: str, columns: int | None) -> list[str]:
    """A line of prose broken at words; a note's further lines stand in by two."""
    return wrapped(line, columns, rest=" " * (len(line) - len(line.lstrip()) + 2))


def work_text(work: Workload, devices: Sequence[int]) -> str:
    """What one iteration does: samples, lengths, epochs, and which models stand beside the policy."""
    per = "per device" if work.scaling == "weak" else "in all"
    whole = ", ".join(f"{work.global_rollouts(count):,} on {count:,}" for count in devices)
    samples = f"{work.rollouts:,} samples {per}" + (f" ({whole})" if whole and work.scaling == "weak" else "")
    named = "PPO" if work.algorithm.name == PPO_NAME else work.algorithm.text()
    epochs = f"{work.ppo_epochs} {named} epoch{'s' if work.ppo_epochs > 1 else ''}"
    steps = f"{work.optimizer_steps} optimizer step{'s' if work.optimizer_steps > 1 else ''}"
    if work.lora_rank is not None:
        trained = f"LoRA of rank {work.lora_rank} trains"
    elif work.trainable_layers is not None:
        trained = f"the last {work.trainable_layers} layers train"
    else:
        trained = "all layers train"
    group = f" in groups of {work.group}" if work.group > 1 else ""
    reference = f"{work.reference} reference" if work.uses_reference else "no reference"
    critic = "no separate critic (a value head)" if work.uses_values else "no critic"
    if work.uses_values and work.critic is not None:
        critic = f"a separate critic of {work.critic.layers} layers, width {work.critic.hidden}"
    return (
        f"{samples}{group}, {_lengths_text(work)}, {epochs} of {steps}, micro batch at most {work.micro_batch}, "
        f"{trained}, {reference}, {critic}"
    )


def _lengths_text(work: Workload) -> str:
    """Even lengths, or the distributions and what they come to."""
    if not work.uneven:
        return f"{work.prompt_tokens} prompt and {work.new_tokens} new tokens each"
    prompts = f"{work.prompt_tokens} tokens" if work.prompt_lengths is None else work.prompt_lengths.text()
    responses = f"{work.new_tokens} tokens" if work.lengths is None else work.lengths.text()
    return f"prompts {prompts}, responses {responses}"


def _plan_lines(plan: Plan, columns: int | None) -> Iterator[str]:
    yield (
        f"{plan.size} on {plan.device}, {plan.backend}, {plan.workload}: "
        f"{plan.fitting} of {plan.considered} candidates fit"
    )
    shown = plan.options or [option for option in (plan.nearest,) if option is not None]
    yield f"one iteration: {work_text(plan.work, sorted({option.devices for option in shown}))}"
    if plan.options:
        yield ""
        yield from grid_lines(option_columns(plan.options), columns)
        yield from marks(plan.options)
        yield _range_text(plan)
        yield ""
        yield from memory_bars(plan.options[:_BARS], columns)
    elif plan.nearest is not None:
        yield _nearest(plan.nearest)
    if plan.misses and plan.options:
        yield ""
        yield "faster, but does not fit:" if plan.objective != "cost" else "cheaper, but does not fit:"
        yield from (f"  {miss.text}" for miss in plan.misses)
    yield ""
    yield from (f"note: {note}" for note in plan.notes)


def _range_text(plan: Plan) -> str:
    if plan.calibrated:
        return f"range: four of five rates, by what your runs left open (configurations that ran: {plan.calibrated})"
    band, memory = plan.band, plan.memory_band
    return (
        f"range: {1 / band.high:.2f} to {1 / band.low:.2f} of samples/s, where four of five published iterations that "
        f"no fit had seen lay ({band.rows} rows, off by {100 * band.median:.0f} % in the median, "
        f"{100 * band.p90:.0f} % at the 90th percentile); peak memory was off by {100 * memory.median:.0f} % and "
        f"{100 * memory.p90:.0f} %"
    )


def fewest_text(plan: Plan, fewest: int | None, without_offload: int | None) -> str:
    """The answer to --min-devices, with the host memory that the best layout takes instead of devices."""
    if fewest is None:
        return "fewest devices: none up to 16384"
    best = plan.options[0]
    if not best.host_memory_bytes:
        return f"fewest devices: {fewest}"
    rest = f"without offload the fewest are {without_offload}" if without_offload else "without offload none are enough"
    return (
        f"fewest devices: {fewest}, by offload: {best.label} takes at least {host_gib(best)} GiB of host memory of "
        f"each node; {rest}"
    )


def _answer_lines(answer: Answer, columns: int | None) -> Iterator[str]:
    if answer.target:
        yield from _target_lines(answer)
    elif answer.options:
        yield _in_words(answer.options[0], answer.kinds)
    yield f"{answer.size}, {answer.workload}: {answer.fitting:,} of {answer.considered:,} arrangements fit"
    yield f"one iteration: {work_text(answer.work, [])}"
    yield ""
    shown = [kind for kind in answer.kinds if kind.best is not None]
    if len(shown) > 1:
        yield from grid_lines(_kinds(shown), columns)
        unfit = [kind.device for kind in answer.kinds if kind.best is None]
        if unfit:
            yield f"nothing fits: {', '.join(unfit)}"
    elif not answer.target and answer.options:
        yield from grid_lines(option_columns(answer.options), columns)
        yield from marks(answer.options)
    elif not answer.options and not shown:
        yield _nearest(answer.nearest) if answer.nearest else _NOTHING_DIVIDES
    others = [option for option in answer.front if option not in answer.options]
    if others and len(shown) < 2:
        yield ""
        yield "nothing beats these in rate, devices and cost at once:"
        yield from grid_lines(option_columns(answer.front[-_FRONT:]), columns)
    yield ""
    if answer.week:
        yield answer.week.text
    yield from (f"assumed: {line}" for line in answer.assumed)
    yield f"prices: {answer.prices}"
    yield "range: where four of five measured rates lie, by the errors on published iterations that no fit had seen"
    yield from (f"note: {note}" for note in answer.notes)


def _in_words(best: Option, kinds: Sequence[Kind]) -> str:
    """``64 H100-SXM-80GB (96 to be sure), 32 train + 32 generate``."""
    kind = next((kind for kind in kinds if kind.device == best.device), None)
    sure = kind.sure if kind else None
    told = "" if kind is None else f" ({sure.devices:,} to be sure)" if sure else " (no number looked at is sure)"
    named = " and ".join(dict.fromkeys((best.device, best.generation_device)))
    if best.placement == "split":
        split = f"{best.training_devices:,} train + {best.generation_devices:,} generate"
        split += ", samples one publication of weights behind" if best.staleness else ", one side waits for the other"
    else:
        split = "all train and generate in turns"
    return (
        f"{best.devices:,} {named}{told}, {split}: between {best.low:.3g} and {best.high:.3g} samples/s "
        f"(predicted {best.samples_per_second:.3g})"
    )


def _target_lines(answer: Answer) -> Iterator[str]:
    rate = answer.target_samples_per_second or 0.0
    said = f"target: {answer.target}" + (f" = {rate:.4g} samples/s" if "samples/s" not in (answer.target or "") else "")
    if not answer.options:
        yield from _unreached(answer, rate)
        yield said
        return
    best = answer.options[0]
    word = "cheapest" if answer.objective == "cost" else "fewest"
    yield _in_words(best, answer.kinds)
    yield f"{said}; {word}: {best.devices:,} x {best.device}, {best.label} ({best.backend})"
    room = best.capacity_bytes - best.fullest_bytes
    yield (
        f"  {best.seconds:.1f} s an iteration, {room / GIB:.1f} GiB of {best.capacity_bytes / GIB:.0f} left"
        f"{' (tight)' if best.tight else ''}{_money(best)}; limit: {best.limit}"
    )


def _money(option: Option) -> str:
    if option.cost_per_hour is None:
        return ""
    return f", {option.cost_per_hour:,.2f} an hour, {option.cost_per_1000_samples:.3g} for 1000 samples"


def _unreached(answer: Answer, rate: float) -> Iterator[str]:
    near = next((kind.best for kind in answer.kinds if kind.best is not None), None)
    if near is None:
        return
    yield (
        f"not reached: the nearest is {near.devices:,} x {near.device}, {near.label} ({near.backend}), with "
        f"{near.samples_per_second:.3g} samples/s, {100 * near.samples_per_second / rate:.0f} % of it; limit: "
        f"{near.limit}"
    )
    yield f"  {_advice(near, answer)}"


def _advice(near: Option, answer: Answer) -> str:
    if "longest sample" in near.limit:
        return (
            "more devices do not shorten the longest sample: shorter responses, or more --samples-per-iteration, would "
            "help"
        )
    if near.devices * 2 > answer.work.rollouts:
        return (
            f"an iteration has {answer.work.rollouts:,} samples, too few for more devices: more "
            "--samples-per-iteration would help"
        )
    return "more devices (--devices N is the most that are looked at), or more --samples-per-iteration, would help"


def _nearest(near: Option) -> str:
    largest = max(near.memory, key=lambda part: near.memory[part])
    return (
        f"nothing fits; nearest is {near.label} ({near.backend}, micro batch {near.micro_batch}) on {near.devices:,} x "
        f"{near.device}: {near.fullest_bytes / GIB:.1f} GiB of {near.capacity_bytes / GIB:.1f}, "
        f"{largest} {near.memory[largest] / GIB:.1f} GiB"
    )


def _kinds(kinds: Sequence[Kind]) -> list[Column]:
    rows = [(kind, kind.best) for kind in kinds if kind.best is not None]
    best = [option for _, option in rows]
    placed = [
        f"split {option.training_devices}+{option.generation_devices}" if option.placement == "split" else "colocated"
        for option in best
    ]
    return [
        Column("device", [kind.device for kind, _ in rows], left=True),
        Column("devices", [f"{option.devices:,}" if kind.reached else "-" for kind, option in rows]),
        Column("sure", [f"{kind.sure.devices:,}" if kind.sure else "-" for kind, _ in rows], 2),
        Column("samples/s", [f"{option.samples_per_second:.3g}" for option in best]),
        Column("arrangement", placed, 3, left=True),
        Column("an hour", [money_cell(option.cost_per_hour) for option in best]),
        Column("per 1000", [money_cell(option.cost_per_1000_samples) for option in best]),
        Column("limit", [option.limit for option in best], 1, left=True),
    ]
