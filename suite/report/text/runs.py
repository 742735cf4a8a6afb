"""A list of runs on a terminal: as many columns as fit, and in a pipe all of them."""

from collections.abc import Callable, Sequence
from functools import cache, partial

from rich.cells import cell_len

from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import UNKNOWN, moment, number
from suite.report.listing import Listed
from suite.spec.terminal import say
from suite.spec.width import terminal_columns

_GAP = "  "
#: Of a name or a list of tags on a terminal, where a longer one would push everything else away.
_LONGEST = 40
_LONGEST_ANYWHERE = 1000


def _fact(name: str) -> Callable[[Listed], str]:
    return lambda one: UNKNOWN if one[name] is None else str(one[name])


#: In the order in which they stand; those that come first stay longest where there is no room.
_COLUMNS: dict[str, Callable[[Listed], str]] = {
    "run": _fact("run"),
    "state": _fact("state"),
    "started": lambda one: moment(one["started"]).removesuffix(" UTC"),
    "samples/s": lambda one: number(one["samples_per_second"], 4),
    "tags": lambda one: " ".join(one["tags"]) or UNKNOWN,
    "size": _fact("size"),
    "ranks": _fact("ranks"),
    "backend": _fact("backend"),
    "layout": _fact("layout"),
    "algorithm": _fact("algorithm"),
    "device": _fact("device_name"),
    "path": _fact("path"),
}
_FIGURES = ("samples/s", "ranks")


def print_runs(runs: Sequence[Listed]) -> None:
    room = terminal_columns()
    limit = _LONGEST if room is not None else _LONGEST_ANYWHERE
    shown_as = cache(partial(visible, limit=limit))  # most runs have most of their texts in common
    cells = {title: [shown_as(read(one)) for one in runs] for title, read in _COLUMNS.items()}
    if not any(one["tags"] for one in runs):
        del cells["tags"]
    widths = {title: max(map(cell_len, {title, *texts})) for title, texts in cells.items()}
    shown, left_out = list(widths), []
    while room is not None and len(shown) > 1 and sum(len(_GAP) + widths[title] for title in shown) - len(_GAP) > room:
        left_out.append(shown.pop())
    columns = [_column(title, cells[title], widths[title]) for title in shown]
    say("\n".join(_GAP.join(line).rstrip() for line in zip(*columns, strict=True)))
    if left_out:
        say(f"not shown at {room} columns: {', '.join(reversed(left_out))}")


def _column(title: str, texts: Sequence[str], width: int) -> list[str]:
    spaces = {text: " " * (width - cell_len(text)) for text in {title, *texts}}
    return [spaces[text] + text if title in _FIGURES else text + spaces[text] for text in (title, *texts)]
