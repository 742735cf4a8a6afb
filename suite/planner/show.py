"""A plan and a scaling curve as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.planner.plan import GIB, Option, Plan
from suite.planner.scale import Point

_BAR = 44
_MARKS = "█▓▒░▚▞▤▦◫·"


def plan_lines(plan: Plan) -> Iterator[str]:
    """Options, their memory as bars, and what would be better but does not fit."""
    yield (
        f"{plan.size} on {plan.device}, {plan.backend}, {plan.workload}: "
        f"{plan.fitting} of {plan.considered} candidates fit"
    )
    if plan.options:
        yield ""
        yield from _options(plan.options)
        if any(option.tight for option in plan.options):
            yield f"! within the memory model's error ({100 * plan.memory_band.p90:.0f} %) of what the device has"
        yield ""
        yield from memory_bars(plan.options[:4])
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


def _options(options: Sequence[Option]) -> Iterator[str]:
    money = any(option.cost_per_1000_samples is not None for option in options)
    head = f"{'layout':<34} {'devices':>7} {'micro':>5} {'GiB':>6}  {'s/iter':>8} {'samples/s':>9} {'tokens/s':>9}"
    yield head + f" {'MFU':>5} {'gen':>7} {'score':>6} {'ref':>6} {'train':>7}" + (f" {'per 1000':>9}" if money else "")
    for option in options:
        phases = option.phases
        line = (
            f"{option.label:<34} {option.devices:>7} {option.micro_batch:>5} "
            f"{option.memory_bytes / GIB:>6.1f}{'!' if option.tight else ' '}"
            f"{option.seconds:>8.2f} {option.samples_per_second:>9.3g} {option.tokens_per_second:>9.4g} "
            f"{100 * option.mfu:>4.1f}%"
            f" {phases['generate']:>7.2f} {phases['score']:>6.2f} {phases['reference']:>6.2f} {phases['train']:>7.2f}"
        )
        yield line + (f" {option.cost_per_1000_samples:>9.3g}" if option.cost_per_1000_samples is not None else "")


def memory_bars(options: Sequence[Option]) -> Iterator[str]:
    """Memory by part on the fullest device, as bars of the device's capacity."""
    parts = list(options[0].memory) + [
        part for option in options[1:] for part in option.memory if part not in options[0].memory
    ]
    marks = {part: _MARKS[index % len(_MARKS)] for index, part in enumerate(dict.fromkeys(parts))}
    for option in options:
        cells = ""
        for part, size in option.memory.items():
            cells += marks[part] * round(_BAR * size / option.capacity_bytes)
        cells = cells[:_BAR].ljust(_BAR)
        use = f"{option.memory_bytes / GIB:.1f} of {option.capacity_bytes / GIB:.0f} GiB"
        yield f"{option.label[:34]:<34} |{cells}| {use}"
    best = options[0].memory
    yield "  ".join(f"{marks[part]} {part} {best.get(part, 0) / GIB:.1f}" for part in marks) + "  (GiB, first row)"


def scale_lines(points: Sequence[Point]) -> Iterator[str]:
    """One line for each number of devices."""
    yield f"{'scaling':<8} {'devices':>7} {'layout':<34} {'samples/s':>10} {'s/iter':>8} {'eta':>5}  limit"
    for point in points:
        option = point.option
        if option is None or point.efficiency is None:
            yield f"{point.scaling:<8} {point.devices:>7} {'-':<34} {'-':>10} {'-':>8} {'-':>5}  {point.limit}"
        else:
            yield (
                f"{point.scaling:<8} {point.devices:>7} {option.label:<34} {option.samples_per_second:>10.4g} "
                f"{option.seconds:>8.2f} {point.efficiency:>5.2f}  {point.limit}"
            )
