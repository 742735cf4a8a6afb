"""Options and scaling curves as tables of text, and memory as bars."""

from collections.abc import Iterator, Sequence

from suite.planner.curves import CurvePoint
from suite.planner.memory import GIB, PARTS
from suite.planner.option import Option
from suite.spec.grid import Column, grid_lines
from suite.spec.width import UNBROKEN, wrapped

_WIDEST_BAR, _NARROWEST_BAR, _WIDEST_LABEL = 44, 16, 34
#: one mark for each part of the memory, the same wherever it is drawn
_MARKS = dict(zip(PARTS, "█▓▒░▚▞▤▨▦◫·", strict=True))
TIGHT = "!"
#: Phases that a table has a column of, with its title and how early it is left out of a narrow terminal.
_PHASES = (("generate", "gen s", 5), ("score", "score s", 8), ("reference", "ref s", 7), ("train", "train s", 6))


def option_columns(options: Sequence[Option]) -> list[Column]:
    """One row for each; phases go first where the terminal is narrow, then what follows from the rate."""
    devices, backends = [option.device for option in options], [option.backend for option in options]
    counts = len({option.devices for option in options}) > 1
    return [
        Column("", [str(number) for number in range(1, len(options) + 1)]),
        Column("layout", [option.label for option in options], left=True),
        *([Column("device", devices, left=True)] if len(set(devices)) > 1 else []),
        *([Column("backend", backends, 3, left=True)] if len(set(backends)) > 1 else []),
        Column("devices", [f"{option.devices:,}" for option in options], 0 if counts else 2),
        Column("micro", [str(option.micro_batch) for option in options], 5),
        Column("GiB", [f"{option.fullest_bytes / GIB:.1f}{TIGHT * option.tight}" for option in options], 3),
        Column("host GiB", [host_gib(option) for option in options], 2),
        Column("s/iter", [f"{option.seconds:.2f}" for option in options], 4),
        Column("samples/s", [f"{option.samples_per_second:.3g}" for option in options]),
        Column("range", [f"{option.low:.3g} to {option.high:.3g}" for option in options], 1),
        Column("tokens/s", [f"{option.tokens_per_second:,.0f}" for option in options], 6),
        Column("MFU", [f"{100 * option.mfu:.1f}%" for option in options], 7),
        *(
            Column(title, [f"{option.phases[name]:.2f}" if name in option.phases else "-" for option in options], rank)
            for name, title, rank in _PHASES
        ),
        Column("per 1000", [money_cell(option.cost_per_1000_samples) for option in options]),
        Column("limit", [option.limit for option in options], 4, left=True),
    ]


def host_gib(option: Option) -> str:
    """Host memory of a node that trains."""
    return f"{option.host_memory_bytes / GIB:,.0f}" if option.host_memory_bytes else "-"


def money_cell(value: float | None) -> str:
    """Three digits of money."""
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def marks(options: Sequence[Option]) -> Iterator[str]:
    """What the marks of the table mean, where they are in it."""
    for number, option in enumerate(options, start=1):
        if option.twins:
            more = f" and {len(option.twins) - 3} more" if len(option.twins) > 3 else ""
            yield f"{number} = {'; '.join(option.twins[:3])}{more}: predicted alike"
    if any(option.tight for option in options):
        roomy = next((number for number, option in enumerate(options, start=1) if not option.tight), None)
        advice = f"{roomy} is the best with room to spare" if roomy else "none of these has room to spare"
        yield f"{TIGHT} tight: memory predictions were off by more than what is left, so it may not fit; {advice}"
    if any(option.host_memory_bytes for option in options):
        yield "host GiB: host memory of one node that offloaded states take, with their buffers"


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
        cells = "".join(
            _MARKS[part] * round(bar * size / option.capacity_bytes) for part, size in option.memory.items()
        )
        shown = name if len(name) <= label else name[: label - 1] + "…"
        yield f"{shown:<{label}} |{cells[:bar].ljust(bar)}| {use}"
    best = options[0].memory
    drawn = [part for part in PARTS if any(part in option.memory for option in options)]
    entries = [f"{_MARKS[part]} {part} " + (f"{best[part] / GIB:.1f}" if part in best else "-") for part in drawn]
    whole = "  ".join(entry.replace(" ", UNBROKEN) for entry in [*entries, "(GiB, row 1)"])
    yield from wrapped(whole, columns, rest="")


def curve_lines(points: Sequence[CurvePoint], columns: int | None) -> Iterator[str]:
    """One line for each number of devices."""
    best = [point.best for point in points]
    shown = [
        Column("layout", [option.label if option else "-" for option in best], left=True),
        Column("scaling", [point.scaling for point in points], left=True),
        Column("devices", [f"{point.devices:,}" for point in points]),
        Column("samples/s", [f"{option.samples_per_second:.4g}" if option else "-" for option in best]),
        Column("range", [f"{option.low:.3g} to {option.high:.3g}" if option else "-" for option in best], 3),
        Column("s/iter", [f"{option.seconds:.2f}" if option else "-" for option in best], 4),
        Column("eta", ["-" if point.efficiency is None else f"{point.efficiency:.2f}" for point in points]),
        Column("limit", [point.limit for point in points], left=True),
    ]
    yield from grid_lines(shown, columns)
