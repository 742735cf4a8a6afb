"""A plan and a scaling curve as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from suite.planner.grid import Column, grid_lines
from suite.planner.iteration_memory import PARTS
from suite.planner.plan import GIB, Option, Plan
from suite.planner.scale import Point
from suite.spec.algorithms import PPO_NAME
from suite.spec.workload import Workload

_WIDEST_BAR, _NARROWEST_BAR, _WIDEST_LABEL = 44, 16, 34
#: one mark for each part of the memory, the same wherever it is drawn
_MARKS = dict(zip(PARTS, "█▓▒░▚▞▤▨▦◫·", strict=True))
_TIGHT = "!"
_BARS = 4


def plan_lines(plan: Plan, columns: int | None = None) -> Iterator[str]:
    """The work, the options, their memory as bars, and what would be better but does not fit.

    No line is longer than ``columns``, broken at words; ``None``: as long as it comes.
    """
    for line in _plan_lines(plan, columns):
        yield from text_lines(line, columns)


def text_lines(line: str, columns: int | None) -> list[str]:
    """A line of prose broken at words; a note's further lines stand in by two."""
    if columns is None or len(line) <= columns:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


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
    reference = f"{work.reference} reference" if work.uses_reference else "no reference"
    return (
        f"{samples}{_group_text(work)}, {_lengths_text(work)}, {epochs} of {steps}, "
        f"micro batch at most {work.micro_batch}, {trained}, {reference}, {_critic_text(work)}"
    )


def _group_text(work: Workload) -> str:
    return f" in groups of {work.group}" if work.group > 1 else ""


def _lengths_text(work: Workload) -> str:
    """Even lengths, or the distributions and what they come to."""
    if not work.uneven:
        return f"{work.prompt_tokens} prompt and {work.new_tokens} new tokens each"
    prompts = f"{work.prompt_tokens} tokens" if work.prompt_lengths is None else work.prompt_lengths.text()
    responses = f"{work.new_tokens} tokens" if work.lengths is None else work.lengths.text()
    return f"prompts {prompts}, responses {responses}"


def _critic_text(work: Workload) -> str:
    if not work.uses_values:
        return "no critic"
    if work.critic is not None:
        return f"a separate critic of {work.critic.layers} layers, width {work.critic.hidden}"
    return "no separate critic (a value head)"


def _plan_lines(plan: Plan, columns: int | None) -> Iterator[str]:
    yield (
        f"{plan.size} on {plan.device}, {plan.backend}, {plan.workload}: "
        f"{plan.fitting} of {plan.considered} candidates fit"
    )
    shown = plan.options or [option for option in (plan.nearest,) if option is not None]
    yield f"one iteration: {work_text(plan.work, sorted({option.devices for option in shown}))}"
    if plan.options:
        yield ""
        yield from grid_lines(_options(plan), columns)
        yield from _legend(plan)
        yield ""
        yield from memory_bars(plan.options[:_BARS], columns)
    elif plan.nearest is not None:
        option = plan.nearest
        yield (
            f"nothing fits; nearest is {option.label} (micro batch {option.micro_batch}): "
            f"{option.memory_bytes / GIB:.1f} GiB of {option.capacity_bytes / GIB:.0f}, "
            f"{option.largest_part} {option.memory[option.largest_part] / GIB:.1f} GiB"
        )
    if plan.misses and plan.options:
        yield ""
        yield "faster, but does not fit:" if plan.objective != "cost" else "cheaper, but does not fit:"
        yield from (f"  {miss.text}" for miss in plan.misses)
    yield ""
    yield (
        f"step times of stacks unknown to the fit were off by {100 * plan.band.median:.0f} % (median) and "
        f"{100 * plan.band.p90:.0f} % (90th percentile), peak memory by {100 * plan.memory_band.median:.0f} %"
    )
    if plan.rate_band is not None:
        band = plan.rate_band
        yield (
            f"whole iterations: published PPO rates (DeepSpeed-Chat) were {band.low:.2f} to {band.high:.2f} of those "
            f"predicted without them; {band.inside} of {band.rows} lay in such a range made from other models"
        )
    yield from (f"note: {note}" for note in plan.notes)


def _options(plan: Plan) -> list[Column]:
    """One row for each layout; phases go first where the terminal is narrow, then what follows from the rate."""
    options = plan.options
    money = any(option.cost_per_1000_samples is not None for option in options)
    host = any(option.host_memory_bytes for option in options)
    phases = [
        each
        for each in (
            *(("sync", "sync", 9), ("gen", "generate", 5), ("score", "score", 8)),
            *(("ref", "reference", 7), ("train", "train", 6)),
        )
        if each[1] in options[0].phases
    ]
    columns = [
        Column("layout", [f"{number} {option.label}" for number, option in enumerate(options, start=1)], left=True),
        Column("devices", [str(option.devices) for option in options], 0 if _several_counts(options) else 2),
        Column("micro", [str(option.micro_batch) for option in options]),
        Column("GiB", [f"{option.memory_bytes / GIB:.1f}{_TIGHT if option.tight else ' '}" for option in options]),
        Column("host GiB", [_host_gib(option) for option in options]) if host else None,
        Column("s/iter", [f"{option.seconds:.2f}" for option in options], 1),
        Column("samples/s", [f"{option.samples_per_second:.3g}" for option in options]),
        Column("range", [_range(option) for option in options]),
        Column("tokens/s", [f"{option.tokens_per_second:,.0f}" for option in options], 3),
        Column("MFU", [f"{100 * option.mfu:.1f}%" for option in options], 4),
        *(Column(title, [f"{option.phases[name]:.2f}" for option in options], rank) for title, name, rank in phases),
        Column("per 1000", [f"{option.cost_per_1000_samples or 0:.3g}" for option in options]) if money else None,
    ]
    return [column for column in columns if column is not None]


def _several_counts(options: Sequence[Option]) -> bool:
    return len({option.devices for option in options}) > 1


def _host_gib(option: Option) -> str:
    return f"{option.host_memory_bytes / GIB:,.0f}" if option.host_memory_bytes else "-"


def _range(option: Option) -> str:
    return f"{option.low:.3g} to {option.high:.3g}"


def _legend(plan: Plan) -> Iterator[str]:
    """What the marks and the columns of the table mean, where they are in it."""
    options, band = plan.options, plan.rate_band
    for number, option in enumerate(options, start=1):
        if option.twins:
            yield f"{number} = {', '.join(option.twins)}: predicted alike"
    if any(option.tight for option in options):
        capacity = options[0].capacity_bytes / GIB
        roomy = next((number for number, option in enumerate(options, start=1) if not option.tight), None)
        advice = f"{roomy} is the best with room to spare" if roomy else "none of these has room to spare"
        yield (
            f"{_TIGHT} tight: within {100 * plan.memory_band.p90:.0f} % of the device's {capacity:.0f} GiB, which is "
            f"how far memory predictions were off (90th percentile), so it may not fit; {advice}"
        )
    if band is not None:
        yield f"range: {band.low:.2f} to {band.high:.2f} times samples/s, as published PPO rates (DeepSpeed-Chat) lay"
    elif plan.calibrated:
        yield f"range: four of five rates, by what your runs left open (configurations that ran: {plan.calibrated})"
    else:
        yield "range: four of five rates, by the errors of published phases whose model no fit had seen"
    if any(option.host_memory_bytes for option in options):
        yield "host GiB: host memory of one node that offloaded states take, with their buffers"


def fewest_text(plan: Plan, fewest: int | None, without_offload: int | None) -> str:
    """The answer to --min-devices, with the host memory that the best layout takes instead of devices."""
    if fewest is None:
        return "fewest devices: none up to 16384"
    best = plan.options[0]
    if not best.host_memory_bytes:
        return f"fewest devices: {fewest}"
    rest = f"without offload the fewest are {without_offload}" if without_offload else "without offload none are enough"
    return (
        f"fewest devices: {fewest}, by offload: {best.label} takes at least {_host_gib(best)} GiB of host memory of "
        f"each node; {rest}"
    )


def memory_bars(options: Sequence[Option], columns: int | None = None) -> Iterator[str]:
    """Memory by part on the fullest device, as bars of the device's capacity; rows have the numbers of the table."""
    labels = [f"{number} {option.label}" for number, option in enumerate(options, start=1)]
    uses = [f"{option.memory_bytes / GIB:.1f} of {option.capacity_bytes / GIB:.0f} GiB" for option in options]
    label = min(_WIDEST_LABEL, max(map(len, labels)))
    bar = _WIDEST_BAR
    if columns is not None:
        room = columns - max(map(len, uses)) - len(" || ")
        label = min(label, room - _NARROWEST_BAR)
        bar = min(bar, room - label)
    for name, option, use in zip(labels, options, uses, strict=True):
        cells = ""
        for part, size in option.memory.items():
            cells += _MARKS[part] * round(bar * size / option.capacity_bytes)
        yield f"{_cut(name, label):<{label}} |{cells[:bar].ljust(bar)}| {use}"
    best = options[0].memory
    drawn = [part for part in PARTS if any(part in option.memory for option in options)]
    entries = [
        f"{_MARKS[part]} {part} {best[part] / GIB:.1f}" if part in best else f"{_MARKS[part]} {part} -"
        for part in drawn
    ]
    yield from _packed([*entries, "(GiB, row 1)"], columns)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _packed(entries: Sequence[str], columns: int | None) -> Iterator[str]:
    """Entries side by side, none of them broken."""
    line = ""
    for entry in entries:
        if line and columns is not None and len(line) + 2 + len(entry) > columns:
            yield line
            line = ""
        line += f"  {entry}" if line else entry
    yield line


def scale_lines(points: Sequence[Point], columns: int | None = None) -> Iterator[str]:
    """One line for each number of devices."""
    options = [point.option for point in points]
    shown = [
        Column("scaling", [point.scaling for point in points], left=True),
        Column("devices", [f"{point.devices:,}" for point in points]),
        Column("layout", [option.label if option else "-" for option in options], left=True),
        Column("samples/s", [f"{option.samples_per_second:.4g}" if option else "-" for option in options]),
        Column("s/iter", [f"{option.seconds:.2f}" if option else "-" for option in options], 1),
        Column("eta", ["-" if point.efficiency is None else f"{point.efficiency:.2f}" for point in points]),
        Column("limit", [point.limit for point in points], left=True),
    ]
    yield from grid_lines(shown, columns)
