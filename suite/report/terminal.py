"""What a report shows on a terminal: the widest form of its headline table that fits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suite.bundle.imported.record import MARK, ImportedRecord
from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK
from suite.report.facts.kind import WorkKind
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.facts.ranking import RankedRow
from suite.report.formatting.escape import visible
from suite.report.formatting.forms import Cells, Form, explained, print_line, print_widest, without
from suite.report.formatting.numbers import UNKNOWN, gib, interval, number
from suite.spec.terminal import say

HEADLINE_ROWS = 40
#: The one kind of work that needs no line above its table: all that once could be measured.
_UNSAID = "PPO on GPT-2"
_NAME_LENGTH = 24
_PROVISIONAL, _UNSTEADY, _SUSPECT, _TWO_MODES = "provisional", "unsteady", "suspect runs", "two modes"
_SHORT_VERDICTS = {"not distinguishable": "unclear", "too few runs": "too few"}
_LEGEND = {
    "unclear": "unclear: not distinguishable",
    "too few": f"too few: fewer than {RUNS_TO_PUBLISH} runs",
    "?": f"?: provisional, fewer than {RUNS_TO_RANK} runs",
    "~": "~: not all runs were steady",
    "!": "!: suspect runs are among them",
    "^": "^: two modes, some runs slower than the others",
}
_ALL_PROVISIONAL = f"all verdicts are provisional: fewer than {RUNS_TO_RANK} runs"


def headline_rows(model: ReportModel) -> list[Cells]:
    """The headline table, one row per row of the report; cells hold no control characters."""
    verdicts = {ranked.row.number: _verdict(ranked) for group in model.ranking.groups for ranked in group.places}
    etas = {point.row.number: point.eta for curve in model.scaling.curves for point in curve.points}
    apart = _set_apart(model.rows)
    return [
        _headline(row, interval(etas.get(row.number), 1), verdicts.get(row.number, _unranked(row)), apart)
        for row in model.rows
    ]


def _set_apart(rows: Sequence[Row]) -> dict[int, str]:
    """By number of the row, what tells rows apart that would look the same here; empty where none would."""
    alike: dict[tuple, list[Row]] = {}
    for row in rows:
        alike.setdefault((row.work, row.size, row.ranks, row.backend, row.layout), []).append(row)
    several = [same for same in alike.values() if len({(row.launcher, row.variant) for row in same}) > 1]
    return {row.number: row.variant or f"launcher={row.launcher}" for same in several for row in same}


def _unranked(row: Row) -> str:
    """In the place of a verdict."""
    return UNKNOWN if row.is_ranked else "suspect"


def _verdict(ranked: RankedRow) -> str:
    remarks = [_PROVISIONAL] if ranked.provisional else []
    remarks += [_UNSTEADY] if ranked.is_unsteady else []
    remarks += [_SUSPECT] if ranked.row.holds_suspect else []
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
            print_line(f"{work.text}:")
        print_widest(_headline_forms(shown))
    if len(rows) > HEADLINE_ROWS:
        say(f"and {len(rows) - HEADLINE_ROWS} more rows in the report")


def _headline(row: Row, eta: str, verdict: str, apart: Mapping[int, str]) -> Cells:
    return {
        "size": visible(row.size, _NAME_LENGTH),
        "ranks": str(row.ranks),
        "backend": visible(row.backend, _NAME_LENGTH),
        "layout": row.layout,
        **({"variant": visible(apart.get(row.number, UNKNOWN), _NAME_LENGTH)} if apart else {}),
        "runs ok": row.ok_runs,
        "samples/s [95 %]": interval(row.samples_per_second) if row.measured else row.without_rate,
        "tokens/s": number(row.tokens_per_second.value if row.tokens_per_second else None),
        "peak GiB": gib(row.memory.peak_bytes if row.memory else None),
        "eta": eta,
        "verdict": verdict,
    }


def _headline_forms(rows: Sequence[Cells]) -> list[Form]:
    """The whole table, and others with ever shorter and fewer columns."""
    short, legend = _short_verdicts(rows)
    without_tokens = [without(row, "tokens/s") for row in short]
    narrow = [
        {**without(row, "runs ok", "peak GiB", "eta", "verdict"), "peak\nGiB": row["peak GiB"]}
        | {"eta": row["eta"].split(" ")[0], "verdict": row["verdict"]}
        for row in without_tokens
    ]
    empty = [title for title in ("eta", "verdict") if all(row[title] == UNKNOWN for row in narrow)]
    narrow = [without(row, *empty) for row in narrow]
    return [
        Form(rows, compact=False),
        Form(short, legend),
        Form(without_tokens, legend, ("tokens/s",)),
        Form(narrow, legend, ("runs ok", "tokens/s", "eta's interval")),
        Form(
            [without(row, "peak\nGiB") for row in narrow], legend, ("runs ok", "tokens/s", "peak GiB", "eta's interval")
        ),
        Form([without(row, "peak\nGiB", "eta") for row in narrow], legend, ("runs ok", "tokens/s", "peak GiB", "eta")),
    ]


def _short_verdicts(rows: Sequence[Cells]) -> tuple[list[Cells], str]:
    """The rows with abbreviated verdicts, and what the abbreviations mean."""
    parts = [row["verdict"].partition(" (") for row in rows]
    provisional = [_PROVISIONAL in remarks for _, _, remarks in parts]
    all_are = all(one for one, (verdict, _, _) in zip(provisional, parts, strict=True) if verdict != UNKNOWN)
    short = []
    for row, one, (verdict, _, remarks) in zip(rows, provisional, parts, strict=True):
        marks = ("?" if one and not all_are else "") + ("~" if _UNSTEADY in remarks else "")
        marks += "!" if _SUSPECT in remarks else ""
        marks += "^" if _TWO_MODES in remarks else ""
        short.append({**row, "verdict": _SHORT_VERDICTS.get(verdict, verdict) + marks})
    legend = explained(short, _LEGEND)
    return short, "; ".join(filter(None, (legend, _ALL_PROVISIONAL if all_are and any(provisional) else "")))


def print_imported(model: ReportModel) -> None:
    """Rows of other tools' logs, in a table of their own that says what they are."""
    if not model.imported:
        return
    print_line(f"{MARK} (figures are those of the tool's own log; in no ranking and no verdict):")
    shown = [_imported(row.record) for row in model.imported[:HEADLINE_ROWS]]
    print_widest([Form(shown, compact=False), Form([without(row, "steps", "tokens/s") for row in shown])])
    if len(model.imported) > HEADLINE_ROWS:
        say(f"and {len(model.imported) - HEADLINE_ROWS} more imported rows in the report")


def _imported(record: ImportedRecord) -> Cells:
    told, rates = record.told, record.throughput
    return {
        "backend": record.tool,
        "size": visible(told.model, _NAME_LENGTH),
        "devices": str(told.devices),
        "steps": str(record.steps.counted),
        "s/step": number(record.step_seconds),
        "samples/s": number(rates.samples_per_second),
        "tokens/s": number(rates.tokens_per_second),
        "verdict": "imported",
    }
