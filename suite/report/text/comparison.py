"""A comparison on a terminal: what kind it is, its rows, where the time went, what differs around, what is lacking."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from suite.report.comparing.model import ComparedRow, FolderComparison, Gate, Lack, Unjudged
from suite.report.formatting.escape import visible
from suite.report.formatting.forms import Cells, Form, cell, console, print_line, print_widest, without
from suite.report.formatting.numbers import UNKNOWN, counted, few, gib, listed, number
from suite.spec.base import printable
from suite.stats.deciding import MOST_RUNS

#: Lines of one kind before the rest is only counted; ``--json`` has all of them.
MOST_LINES, _REST = 5, "- and {} more; --json has them all"
_MOST_FACTS = 3
_MOST_ROWS_WITH_PHASES = 8
_SHORT_VERDICTS = {"not distinguishable": "unclear"}
_LACKS: dict[Lack, str] = {
    "no partner": "without partner",
    "ambiguous": "measured in several ways",
    "failed": "with failed runs",
    "damaged": "left out, damaged",
    "altered": "with records that are not what their events give",
    "inconsistent": "that cannot be what a run left",
    "running": "left out, still being run",
    "missing run": "of a plan whose other repeats are missing",
    "suspect": "with suspect runs",
    "copies": "that are copies and prove nothing",
    "one run": "with too few runs",
}
_OF_BUNDLES = ("damaged", "altered", "inconsistent", "running", "missing run")
_SIDES = {"before": "before: ", "after": "after: ", None: ""}


def print_comparison(result: FolderComparison, gate: Gate | None = None, all_phases: bool = False) -> None:
    for line in headline(result):
        print_line(line)
    if result.rows:
        print_widest(_forms(result.rows, result.margin))
    if sum(row.probability is not None for row in result.rows) > 1:
        print_line(
            f"intervals and verdicts hold for all rows together ({result.method}): equal sides show a difference in at "
            f"most {result.level:.0%} of cases, and of those shown at most {result.level:.0%} are expected to be false"
        )
    _print_phases(result.rows, all_phases)
    _print_surroundings(result)
    gated = gate_lines(result, gate) if gate else ()
    for line in (*_lacking(result.unjudged), *_needed(result.rows, result.margin), *gated):
        print_line(line)


def headline(result: FolderComparison) -> Iterator[str]:
    """What kind of comparison it is, with the facts that make it one, and how many rows ended how."""
    around = result.surroundings
    codes = [one for one in around.differences if one.name.endswith(" code")]
    said = {"host", *(one.name.removesuffix(" code") for one in codes)}
    named = [*codes, *(one for one in around.differences if one not in codes and not said & {one.kind, one.name})]
    facts = [f"{one.name} {_values(one.before)} -> {_values(one.after)}" for one in named]
    yield f"{around.label}{': ' if facts else ''}{'; '.join(few(facts, _MOST_FACTS, '{} more below'))}"
    ways = {
        "slower": sum(row.verdict == "slower" for row in result.rows),
        "faster": sum(row.verdict == "faster" for row in result.rows),
        f"equal within {result.margin:.0%}": sum(map(_is_equal, result.rows)),
        "undecided": sum(not row.decided for row in result.rows),
    }
    counts = [f"{rows} {way}" for way, rows in ways.items() if rows]
    yield f"{counted(len(result.rows), 'row')} compared{': ' if counts else ''}{', '.join(counts)}"


def gate_lines(result: FolderComparison, gate: Gate) -> Iterator[str]:
    """What came of each row, and in the last line of the gate, which begins with its outcome."""
    at = f"the gate of {gate.gate:g}{f' on {gate.phase}' if gate.phase else ''}"
    if result.surroundings.same_stack is None:
        yield "whether both sides ran the same code is not known: bundles of one of them do not tell it"
    count = len(result.rows)
    open_rows = [row.gate for row in result.rows if row.gate and row.gate.outcome == "undecided"]
    tested = [one.runs_needed for one in open_rows if one.at_least is not None]
    if tested:
        fate = "which fails with --strict" if gate.strict else "which passes without --strict"
        yield f"{len(tested)} of {counted(count, 'row')} could be on either side of {at}, {fate}{_runs_text(tested)}"
    if len(tested) < len(open_rows):
        yield f"{counted(len(open_rows) - len(tested), 'row')} could not be tested, which no option lets pass"
    if gate.lacking:
        things = counted(gate.lacking, "row or bundle", "rows and bundles")
        fate = "allowed by --allow-missing" if gate.allow_missing else "which --allow-missing would let pass"
        yield f"{things} cannot be judged, {fate}"
    rows = gate.missed or gate.lost
    which = f"{rows} of {counted(count, 'row')} {'is' if rows == 1 else 'are'}"
    ends = {
        "met": f"met: {'no row is shown to be below' if gate.undecided else 'every row keeps to'} {at}",
        "slower": f"slower: {which} {'below' if gate.missed else 'slower than before, and not shown to keep to'} {at}",
        "undecided": f"undecided: the runs do not tell whether every row keeps to {at}",
        "doubtful": f"doubtful: what would be said of {at} rests on {listed(gate.doubts)}",
    }
    yield ends[gate.outcome]


def _is_equal(row: ComparedRow) -> bool:
    return row.verdict == "not distinguishable" and bool(row.equivalent)


def _forms(rows: Sequence[ComparedRow], margin: float) -> list[Form]:
    legend_of = {
        "unclear": "unclear: not distinguishable",
        "equal": f"equal: not distinguishable, and equal within {margin:.0%}",
        " =": f"=: equal within {margin:.0%}",
        "untested": "untested: see below why",
        "~": "~: not all runs were steady, or some were slow",
    }
    unsaid = () if any(row.variant for row in rows) else ("variant",)
    whole = [without(_compared(row, _long(row, margin)), *unsaid) for row in rows]
    short = [without(_compared(row, _short(row)), *unsaid) for row in rows]
    legend = "; ".join(text for mark, text in legend_of.items() if any(mark in row["verdict"] for row in short))
    dropped = ((), ("runs",), ("runs", "layout"))
    narrow = [Form([without(cells, *titles) for cells in short], legend, titles) for titles in dropped]
    return [Form(whole, compact=False), *narrow]


def _long(row: ComparedRow, margin: float) -> str:
    equal = f", equal within {margin:.0%}" if row.equivalent else ""
    unsteady = " (unsteady)" if row.unsteady_before or row.unsteady_after else ""
    slow = " (slow runs)" if row.slow_before or row.slow_after else ""
    return f"{row.verdict if row.reason is None else 'not tested'}{equal}{unsteady}{slow}"


def _short(row: ComparedRow) -> str:
    shaky = "~" if row.unsteady_before or row.unsteady_after or row.slow_before or row.slow_after else ""
    if row.reason is not None or _is_equal(row):
        return f"{'equal' if row.reason is None else 'untested'}{shaky}"
    return f"{_SHORT_VERDICTS.get(row.verdict, row.verdict)}{shaky}{' =' if row.equivalent else ''}"


def _compared(row: ComparedRow, verdict: str) -> Cells:
    cells = {
        "size": visible(row.size, 24),
        "ranks": str(row.ranks),
        "backend": visible(row.backend, 24),
        "layout": printable(row.layout),
        "variant": visible(row.variant, 40),
        "runs": f"{row.runs_before} / {row.runs_after}",
        "ratio [95 %]": _ratio(row),
        "verdict": verdict,
    }
    return cells | ({"gate": row.gate.outcome} if row.gate else {})


def _ratio(one: Any) -> str:
    if one.ratio is None or one.low is None or one.high is None:
        return UNKNOWN if one.ratio is None else f"{one.ratio:.3f}"
    bounds = ("<0.01" if bound < 0.01 else ">100" if bound > 100 else f"{bound:.3f}" for bound in (one.low, one.high))
    return f"{one.ratio:.3f} [{', '.join(bounds)}]"


def _print_phases(rows: Sequence[ComparedRow], all_phases: bool) -> None:
    """Of rows that differ, as a whole or in a phase; of one row alone in any case."""
    known = [row for row in rows if row.phases]
    moved = [
        row
        for row in known
        if len(rows) == 1 or {"slower", "faster"} & {row.verdict, *(phase.verdict for phase in row.phases)}
    ]
    shown = known if all_phases else moved[:_MOST_ROWS_WITH_PHASES]
    if shown:
        print_line("where the time went: seconds per iteration, ratio of rates, share of the change")
    for row in shown:
        print_line(f"{row.name}:")
        print_widest([Form(list(_phase_cells(row)), compact=True)])
    if len(shown) < len(known):
        print_line(f"phases of {counted(len(known) - len(shown), 'more row')}: --phases")
    lines = [
        f"memory peak of {row.name}: {gib(one.before_bytes)} -> {gib(one.after_bytes)} GiB ({one.verdict})"
        for row in rows
        if row not in shown and (one := row.memory) and one.verdict in ("more", "less")
    ]
    for line in few(lines, MOST_LINES, _REST):
        print_line(line)


def _phase_cells(row: ComparedRow) -> Iterator[Cells]:
    parts: list[tuple[str, str, str, str, Any]] = []
    for phase in row.phases:
        share = UNKNOWN if phase.share_of_change is None else f"{phase.share_of_change:.0%}"
        parts.append((phase.name, number(phase.before_seconds), number(phase.after_seconds), share, phase))
    if row.memory:
        before, after = (f"{gib(size)} GiB" for size in (row.memory.before_bytes, row.memory.after_bytes))
        parts.append(("memory", before, after, "", row.memory))
    for name, before, after, share, one in parts:
        verdict = one.verdict or ""
        yield {
            "phase": name,
            "before": before,
            "after": after,
            "ratio [95 %]": _ratio(one),
            "share": share,
            "verdict": _SHORT_VERDICTS.get(verdict, verdict),
        }


def _print_surroundings(result: FolderComparison) -> None:
    around = result.surroundings
    if around.equal and result.rows:
        print_line(f"environment: equal in all {counted(len(around.alike), 'fact')} that are known of it")
    if around.equal or not result.rows:
        return
    print_line("environment: what differs")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("fact", "before", "after", "rows"):
        table.add_column(title, justify="right" if title == "rows" else "left", overflow="fold")
    for one in around.differences:
        rows = "all" if len(one.rows) == len(result.rows) else f"{len(one.rows)} of {len(result.rows)}"
        table.add_row(*map(cell, (one.name, _values(one.before), _values(one.after), rows)))
    console().print(table)
    print_line(f"the same: {counted(len(around.alike), 'other fact')}")


def _values(values: Sequence[str]) -> str:
    return ", ".join(few([visible(value, 60) for value in values], MOST_LINES, "{} more")) or UNKNOWN


def _lacking(unjudged: Sequence[Unjudged]) -> Iterator[str]:
    for lack, words in _LACKS.items():
        found = [one for one in unjudged if one.lack == lack]
        if found:
            noun, plural = ("row or bundle", "rows or bundles") if lack == "copies" else ("row", None)
            yield f"{counted(len(found), 'bundle' if lack in _OF_BUNDLES else noun, plural)} {words}:"
            lines = [
                f"- {_SIDES[one.side]}{visible(one.name, 200)}{': ' if one.detail else ''}{visible(one.detail, 400)}"
                for one in found
            ]
            yield from few(lines, MOST_LINES, _REST)


def _needed(rows: Sequence[ComparedRow], margin: float) -> Iterator[str]:
    """How many runs would decide between a difference and equality, where that is open."""
    open_rows = [row for row in rows if not row.decided and row.reason is None]
    if open_rows:
        yield (
            f"{counted(len(open_rows), 'row')} could differ or be equal within {margin:.0%}"
            f"{_runs_text([row.runs_needed for row in open_rows])}"
        )


def _runs_text(needed: Sequence[int | None]) -> str:
    known = sorted({count for count in needed if count is not None})
    unknown, is_one = needed.count(None), len(needed) == 1
    texts = []
    if known:
        span = " to ".join(map(str, dict.fromkeys((known[0], known[-1]))))
        texts.append(f"{span} runs a side would likely decide {'it' if is_one else 'them'}")
    if unknown:
        texts.append(f"{MOST_RUNS:,} runs a side would not decide {'it' if is_one else f'{unknown} of them'}")
    return f"; {listed(texts)}" if texts else ""
