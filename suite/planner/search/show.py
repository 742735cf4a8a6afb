"""The answer to a search as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.planner.grid import Column, grid_lines
from suite.planner.search.answer import Answer
from suite.planner.search.options import Arrangement, gib
from suite.planner.show import text_lines, work_text


def answer_lines(answer: Answer, columns: int | None = None) -> Iterator[str]:
    """What is assumed, the answer, the tables, the notes; no line longer than ``columns``."""
    for line in _lines(answer, columns):
        yield from text_lines(line, columns)


def _lines(answer: Answer, columns: int | None) -> Iterator[str]:
    yield f"{answer.size}, {answer.workload}: {answer.fitting:,} of {answer.considered:,} arrangements fit"
    yield f"one iteration: {work_text(answer.work, [])}"
    yield from (f"assumed: {line}" for line in answer.assumed)
    yield f"prices: {answer.prices}"
    yield ""
    if answer.target:
        yield from _target_lines(answer, columns)
    elif answer.options:
        yield from grid_lines(_table(answer.options), columns)
        yield from _marks(answer.options)
    else:
        yield from _nothing(answer)
    others = [option for option in answer.front if option not in answer.options]
    if others and not answer.target:
        yield ""
        yield "nothing beats these in rate, devices and cost at once:"
        yield from grid_lines(_table(answer.front), columns)
    yield ""
    low, high = answer.band
    yield f"range: four of five measured rates lay within {1 / high:.2f} to {1 / low:.2f} times the predicted"
    yield from (f"note: {note}" for note in answer.notes)


def _target_lines(answer: Answer, columns: int | None) -> Iterator[str]:
    rate = answer.target_samples_per_second or 0.0
    said = f"target: {answer.target}" + (f" = {rate:.4g} samples/s" if "samples/s" not in (answer.target or "") else "")
    yield said
    if answer.options:
        best = answer.options[0]
        word = "cheapest" if answer.objective == "cost" else "fewest"
        yield f"{word}: {best.devices:,} x {best.device}, {best.label} ({best.backend})"
        yield (
            f"  {best.samples_per_second:.3g} samples/s ({best.low:.3g} to {best.high:.3g}), {best.seconds:.1f} s an "
            f"iteration{_money(best)}; limit: {best.limit}"
        )
        sure = next((kind.sure for kind in answer.kinds if kind.device == best.device), None)
        yield f"  {_sure(best, sure)}"
    else:
        yield from _unreached(answer, rate)
    shown = [(kind, kind.best) for kind in answer.kinds if kind.best is not None]
    if len(shown) > 1:
        yield ""
        yield from grid_lines(_kinds(answer), columns)
        unfit = [kind.device for kind in answer.kinds if kind.best is None]
        if unfit:
            yield f"nothing fits: {', '.join(unfit)}"
    elif answer.front:
        yield ""
        yield "nothing beats these in rate, devices and cost at once:"
        yield from grid_lines(_table(answer.front), columns)


def _sure(best: Arrangement, sure: Arrangement | None) -> str:
    if sure is None:
        return "no number of devices that was looked at reaches it at the low end of the range"
    if sure.devices == best.devices:
        return "that is enough at the low end of the range too"
    return f"{sure.devices:,} are enough at the low end of the range too"


def _money(option: Arrangement) -> str:
    if option.cost_per_hour is None:
        return ""
    return f", {option.cost_per_hour:,.2f} an hour, {option.cost_per_1000_samples:.3g} for 1000 samples"


def _unreached(answer: Answer, rate: float) -> Iterator[str]:
    near = next((kind.best for kind in answer.kinds if kind.best is not None), None)
    if near is None:
        yield from _nothing(answer)
        return
    yield (
        f"not reached: the nearest is {near.devices:,} x {near.device}, {near.label} ({near.backend}), with "
        f"{near.samples_per_second:.3g} samples/s, {100 * near.samples_per_second / rate:.0f} % of it; limit: "
        f"{near.limit}"
    )
    yield f"  {_advice(near, answer)}"


def _advice(near: Arrangement, answer: Answer) -> str:
    if "longest sample" in near.limit:
        return "more devices do not shorten the longest sample: shorter responses, or more --rollouts, would help"
    if near.devices * 2 > answer.work.rollouts:
        return (
            f"an iteration has {answer.work.rollouts:,} samples, too few for more devices: more --rollouts would help"
        )
    return "more devices (--devices N is the most that are looked at), or a larger batch (--rollouts), would help"


def _nothing(answer: Answer) -> Iterator[str]:
    near = answer.nearest
    if near is None:
        yield "nothing divides the model and the work on so many devices: other numbers of --devices or --rollouts do"
        return
    used = max(near.memory_bytes, near.generation_memory_bytes)
    yield (
        f"nothing fits; nearest is {near.label} ({near.backend}) on {near.devices:,} x {near.device}: {gib(used)} GiB "
        f"of {gib(near.capacity_bytes)}"
    )


def _kinds(answer: Answer) -> list[Column]:
    rows = [(kind, kind.best) for kind in answer.kinds if kind.best is not None]
    options = [best for _, best in rows]
    money = any(option.cost_per_hour is not None for option in options)
    columns = [
        Column("device", [kind.device for kind, _ in rows], left=True),
        Column("devices", [f"{option.devices:,}" if kind.reached else "-" for kind, option in rows]),
        Column("sure", [f"{kind.sure.devices:,}" if kind.sure else "-" for kind, _ in rows], 2),
        Column("samples/s", [f"{option.samples_per_second:.3g}" for option in options]),
        Column("arrangement", [_short(option) for option in options], 3, left=True),
        Column("an hour", [_cell(option.cost_per_hour) for option in options]) if money else None,
        Column("per 1000", [_cell(option.cost_per_1000_samples) for option in options]) if money else None,
        Column("limit", [option.limit for option in options], 1, left=True),
    ]
    return [column for column in columns if column is not None]


def _short(option: Arrangement) -> str:
    if option.placement == "colocated":
        return "colocated"
    return f"split {option.training_devices}+{option.generation_devices}"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _table(options: Sequence[Arrangement]) -> list[Column]:
    money = any(option.cost_per_1000_samples is not None for option in options)
    host = any(option.host_memory_bytes for option in options)
    several = len({option.backend for option in options}) > 1
    kinds = len({option.device for option in options}) > 1
    columns = [
        Column("arrangement", [f"{n} {option.label}" for n, option in enumerate(options, start=1)], left=True),
        Column("device", [option.device for option in options], left=True) if kinds else None,
        Column("backend", [option.backend for option in options], 3, left=True) if several else None,
        Column("devices", [f"{option.devices:,}" for option in options]),
        Column("micro", [str(option.micro_batch) for option in options], 5),
        Column("GiB", [_gib(option) for option in options], 3),
        Column("host GiB", [_host(option) for option in options], 2) if host else None,
        Column("s/iter", [f"{option.seconds:.1f}" for option in options], 4),
        Column("gen s", [f"{option.generation_seconds:.1f}" for option in options], 6),
        Column("train s", [f"{option.training_seconds:.1f}" for option in options], 6),
        Column("samples/s", [f"{option.samples_per_second:.3g}" for option in options]),
        Column("range", [f"{option.low:.3g} to {option.high:.3g}" for option in options], 1),
        Column("per 1000", [_cell(option.cost_per_1000_samples) for option in options]) if money else None,
        Column("limit", [option.limit for option in options], left=True),
    ]
    return [column for column in columns if column is not None]


def _gib(option: Arrangement) -> str:
    return f"{gib(max(option.memory_bytes, option.generation_memory_bytes))}{'!' if option.tight else ' '}"


def _host(option: Arrangement) -> str:
    return f"{option.host_memory_bytes / 2**30:,.0f}" if option.host_memory_bytes else "-"


def _marks(options: Sequence[Arrangement]) -> Iterator[str]:
    for number, option in enumerate(options, start=1):
        if option.twins:
            more = f" and {len(option.twins) - 3} more" if len(option.twins) > 3 else ""
            yield f"{number} = {'; '.join(option.twins[:3])}{more}: predicted alike"
    if any(option.tight for option in options):
        yield "! tight: nearer to the device's memory than memory predictions were off, so it may not fit"
    if any(option.host_memory_bytes for option in options):
        yield "host GiB: host memory of one node that offloaded states take, with their buffers"
