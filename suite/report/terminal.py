"""What reports and comparisons show on a terminal: the widest form of their table that fits it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.markup import escape
from rich.table import Table

from suite.report.compare import ComparedRow, FolderComparison
from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK
from suite.report.facts.kind import WorkKind
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.ranking import RankedRow
from suite.report.formatting.console import console
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import UNKNOWN, gib, interval, number
from suite.spec.base import printable
from suite.stats.compare import DEFAULT_MARGIN

HEADLINE_ROWS = 40
#: The one kind of work that needs no line above its table: all that once could be measured.
_UNSAID = "PPO on GPT-2"
_NAME_LENGTH = 24
_LEFT = ("size", "backend", "layout", "verdict")
_EQUIVALENCE = {True: f", equal within {DEFAULT_MARGIN:.0%}", False: "", None: " (2 runs a side are needed)"}
_PROVISIONAL, _UNSTEADY, _TWO_MODES = "provisional", "unsteady", "two modes"
_SHORT_VERDICTS = {"not distinguishable": "unclear", "too few runs": "too few"}
_LEGEND = {
    "unclear": "unclear: not distinguishable",
    "too few": f"too few: fewer than {RUNS_TO_PUBLISH} runs",
    "?": f"?: provisional, fewer than {RUNS_TO_RANK} runs",
    "~": "~: not all runs were steady",
    "^": "^: two modes, some runs slower than the others",
}
_ALL_PROVISIONAL = f"all verdicts are provisional: fewer than {RUNS_TO_RANK} runs"
_COMPARISON_LEGEND = {
    "unclear": "unclear: not distinguishable",
    "equal": f"equal: not distinguishable, and equal within {DEFAULT_MARGIN:.0%}",
    " =": f"=: equal within {DEFAULT_MARGIN:.0%}",
    "?": "?: 2 runs a side are needed",
}

#: One row of a table, title -> plain text; all rows of a table have the same titles in the same order.
Cells = dict[str, str]


@dataclass(frozen=True)
class Form:
    """A way to show a table, with the line that explains its abbreviations, and the columns it has no room for."""

    rows: Sequence[Cells]
    legend: str = ""
    left_out: tuple[str, ...] = ()
    compact: bool = True


def headline_rows(model: ReportModel) -> list[Cells]:
    """The headline table, one row per row of the report; cells hold no control characters."""
    verdicts = {ranked.row.number: _verdict(ranked) for group in model.ranking.groups for ranked in group.places}
    etas = {point.row.number: point.eta for curve in model.scaling.curves for point in curve.points}
    return [_headline(row, interval(etas.get(row.number), 1), verdicts.get(row.number, UNKNOWN)) for row in model.rows]


def _verdict(ranked: RankedRow) -> str:
    remarks = [_PROVISIONAL] if ranked.provisional else []
    remarks += [_UNSTEADY] if ranked.row.unsteady_runs else []
    remarks += [_TWO_MODES] if ranked.row.two_modes else []
    return f"{ranked.verdict} ({', '.join(remarks)})" if remarks else ranked.verdict


def print_headline(model: ReportModel) -> None:
    """The report's headline table on the terminal; one for each kind of work, where there are several."""
    rows = headline_rows(model)
    by_work: dict[WorkKind, list[Cells]] = {}
    for row, cells in zip(model.rows[:HEADLINE_ROWS], rows, strict=False):
        by_work.setdefault(row.work, []).append(cells)
    for work, shown in by_work.items():
        if model.several_kinds or work.text != _UNSAID:
            _print_line(f"{work.text}:")
        _print_widest(_headline_forms(shown))
    if len(rows) > HEADLINE_ROWS:
        print(f"and {len(rows) - HEADLINE_ROWS} more rows in the report")


def print_folder_comparison(result: FolderComparison) -> None:
    """Row by row the second side's rate over the first's."""
    _print_widest(_comparison_forms(result.rows))
    for side, names in (("first", result.only_before), ("second", result.only_after)):
        if names:
            _print_line(f"only on the {side} side: {', '.join(names)}")
    for line in result.other_work:
        _print_line(f"not compared, because the work differs: {line}")


def _headline(row: Row, eta: str, verdict: str) -> Cells:
    return {
        "size": visible(row.size, _NAME_LENGTH),
        "ranks": str(row.ranks),
        "backend": visible(row.backend, _NAME_LENGTH),
        "layout": row.layout,
        "runs ok": f"{row.runs_ok} of {row.runs}",
        "samples/s [95 %]": interval(row.samples_per_second) if row.measured else row.without_rate,
        "tokens/s": number(row.tokens_per_second.value if row.tokens_per_second else None),
        "peak GiB": gib(row.memory.peak_bytes if row.memory else None),
        "eta": eta,
        "verdict": verdict,
    }


def _headline_forms(rows: Sequence[Cells]) -> list[Form]:
    """The whole table, and others with ever shorter and fewer columns."""
    short, legend = _short_verdicts(rows)
    without_tokens = [_without(row, "tokens/s") for row in short]
    narrow = [
        {**_without(row, "runs ok", "peak GiB", "eta", "verdict"), "peak\nGiB": row["peak GiB"]}
        | {"eta": row["eta"].split(" ")[0], "verdict": row["verdict"]}
        for row in without_tokens
    ]
    empty = [title for title in ("eta", "verdict") if all(row[title] == UNKNOWN for row in narrow)]
    narrow = [_without(row, *empty) for row in narrow]
    return [
        Form(rows, compact=False),
        Form(short, legend),
        Form(without_tokens, legend, ("tokens/s",)),
        Form(narrow, legend, ("runs ok", "tokens/s", "eta's interval")),
        Form(
            [_without(row, "peak\nGiB") for row in narrow],
            legend,
            ("runs ok", "tokens/s", "peak GiB", "eta's interval"),
        ),
        Form([_without(row, "peak\nGiB", "eta") for row in narrow], legend, ("runs ok", "tokens/s", "peak GiB", "eta")),
    ]


def _short_verdicts(rows: Sequence[Cells]) -> tuple[list[Cells], str]:
    """The rows with abbreviated verdicts, and what the abbreviations mean."""
    parts = [row["verdict"].partition(" (") for row in rows]
    provisional = [_PROVISIONAL in remarks for _, _, remarks in parts]
    all_are = all(one for one, (verdict, _, _) in zip(provisional, parts, strict=True) if verdict != UNKNOWN)
    short = []
    for row, one, (verdict, _, remarks) in zip(rows, provisional, parts, strict=True):
        marks = ("?" if one and not all_are else "") + ("~" if _UNSTEADY in remarks else "")
        marks += "^" if _TWO_MODES in remarks else ""
        short.append({**row, "verdict": _SHORT_VERDICTS.get(verdict, verdict) + marks})
    legend = _explained(short, _LEGEND)
    return short, "; ".join(filter(None, (legend, _ALL_PROVISIONAL if all_are and any(provisional) else "")))


def _comparison_forms(rows: Sequence[ComparedRow]) -> list[Form]:
    whole = [_compared(row, row.verdict + _EQUIVALENCE[row.equivalent]) for row in rows]
    short = [_compared(row, _short_comparison(row)) for row in rows]
    legend = _explained(short, _COMPARISON_LEGEND)
    return [
        Form(whole, compact=False),
        Form(short, legend),
        Form([_without(row, "runs") for row in short], legend, ("runs",)),
    ]


def _short_comparison(row: ComparedRow) -> str:
    if row.equivalent and row.verdict == "not distinguishable":
        return "equal"
    mark = {True: " =", False: "", None: "?"}[row.equivalent]
    return _SHORT_VERDICTS.get(row.verdict, row.verdict) + mark


def _compared(row: ComparedRow, verdict: str) -> Cells:
    bounds = "" if row.low is None or row.high is None else f" [{row.low:.3f}, {row.high:.3f}]"
    return {
        "size": printable(row.size),
        "ranks": str(row.ranks),
        "backend": printable(row.backend),
        "layout": printable(row.layout),
        "runs": f"{row.runs_before} / {row.runs_after}",
        "ratio [95 %]": f"{row.ratio:.3f}{bounds}",
        "verdict": verdict,
    }


def _without(row: Cells, *titles: str) -> Cells:
    return {title: cell for title, cell in row.items() if title not in titles}


def _explained(rows: Sequence[Cells], legend: dict[str, str]) -> str:
    """The explanation of each abbreviation that a verdict has."""
    return "; ".join(text for mark, text in legend.items() if any(mark in row["verdict"] for row in rows))


def _print_widest(forms: Sequence[Form]) -> None:
    """The first form that fits the terminal, with what it abbreviates and leaves out; in a pipe the first."""
    screen = console()
    chosen = forms[0]
    if sys.stdout.isatty():
        unlimited = screen.options.update(width=10_000)
        fitting = (form for form in forms if screen.measure(_drawn(form), options=unlimited).maximum <= screen.width)
        chosen = next(fitting, forms[-1])
    screen.print(_drawn(chosen))
    if chosen.legend:
        _print_line(chosen.legend)
    if chosen.left_out:
        _print_line(f"not shown at {screen.width} columns: {', '.join(chosen.left_out)}")


def _drawn(form: Form) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    if form.compact:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for title in form.rows[0]:
        table.add_column(title, justify="left" if title in _LEFT else "right")
    for row in form.rows:
        table.add_row(*(escape(cell) for cell in row.values()))
    return table


def _print_line(text: str) -> None:
    """A line that a terminal does not break within a word."""
    if sys.stdout.isatty():
        console().print(printable(text), markup=False, highlight=False)
    else:
        print(printable(text))
