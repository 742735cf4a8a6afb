"""A comparison on a terminal: what kind it is, its rows, where the time went, what differs around, what is lacking."""

from collections.abc import Iterator, Sequence
from typing import get_args

from suite.report.comparing.model import ComparedPhase, ComparedRow, FolderComparison, Gate, Lack, Tested, Unjudged
from suite.report.formatting.escape import visible
from suite.report.formatting.forms import Cells, Form, print_line, print_widest, without
from suite.report.formatting.numbers import UNKNOWN, counted, few, gib, listed, number
from suite.spec.base import printable
from suite.stats.deciding import MOST_RUNS

#: Lines of one kind before the rest is only counted; ``--json`` has all of them.
MOST_LINES, _REST = 5, "- and {} more; --json has them all"
_MOST_FACTS = 3
_MOST_ROWS_WITH_PHASES = 8
_SHORT_VERDICTS = {"not distinguishable": "unclear"}
_UNMOVED = {"not distinguishable", None}


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
    gated = gate_lines(result, gate) if gate else ()
    open_rows = _needed(result.rows, result.margin)
    for line in (*_surroundings(result), *_lacking(result.unjudged), *open_rows, *gated):
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
    if result.unjudged:
        things = counted(len(result.unjudged), "row or bundle", "rows and bundles")
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
    cells = [without(_compared(row), *unsaid) for row in rows]
    legend = "; ".join(text for mark, text in legend_of.items() if any(mark in row["verdict"] for row in cells))
    dropped = ((), ("runs",), ("runs", "layout"))
    narrow = [Form([without(row, *titles) for row in cells], legend, titles) for titles in dropped]
    return [Form(cells, legend, compact=False), *narrow]


def _verdict(row: ComparedRow) -> str:
    word = "equal" if _is_equal(row) else _SHORT_VERDICTS.get(row.verdict, row.verdict)
    shaky = "~" * bool(row.unsteady_before or row.unsteady_after or row.slow_before or row.slow_after)
    also = " =" * bool(row.equivalent and not _is_equal(row))
    return f"{word if row.reason is None else 'untested'}{shaky}{also}"


def _compared(row: ComparedRow) -> Cells:
    cells = {
        "size": visible(row.size, 24),
        "ranks": str(row.ranks),
        "backend": visible(row.backend, 24),
        "layout": printable(row.layout),
        "variant": visible(row.variant, 40),
        "runs": f"{row.runs_before} / {row.runs_after}",
        "ratio [95 %]": _ratio(row),
        "verdict": _verdict(row),
    }
    return cells | ({"gate": row.gate.outcome} if row.gate else {})


def _ratio(one: Tested) -> str:
    if one.ratio is None or one.low is None or one.high is None:
        return UNKNOWN if one.ratio is None else f"{one.ratio:.3f}"
    bounds = ("<0.01" if bound < 0.01 else ">100" if bound > 100 else f"{bound:.3f}" for bound in (one.low, one.high))
    return f"{one.ratio:.3f} [{', '.join(bounds)}]"


def _print_phases(rows: Sequence[ComparedRow], all_phases: bool) -> None:
    """Of rows that differ, as a whole, in a phase or in memory; of one row alone in any case."""
    known = [row for row in rows if row.phases]
    moved = [
        row
        for row in known
        if len(rows) == 1 or not {one.verdict for one in (row, *row.phases, row.memory) if one} <= _UNMOVED
    ]
    shown = known if all_phases else moved[:_MOST_ROWS_WITH_PHASES]
    if shown:
        print_line("where the time went: seconds per iteration, ratio of rates, share of the change; memory, its ratio")
    for row in shown:
        print_line(f"{row.name}:")
        print_widest([Form(list(_phase_cells(row)))])
    if len(shown) < len(known):
        print_line(f"phases of {counted(len(known) - len(shown), 'more row')}: --phases")


def _phase_cells(row: ComparedRow) -> Iterator[Cells]:
    for one in (*row.phases, row.memory):
        if isinstance(one, ComparedPhase):
            name, before, after = one.name, number(one.before_seconds), number(one.after_seconds)
            share = UNKNOWN if one.share_of_change is None else f"{one.share_of_change:.0%}"
        elif one:
            name, share, before, after = "memory", "", f"{gib(one.before_bytes)} GiB", f"{gib(one.after_bytes)} GiB"
        else:
            continue
        verdict = _SHORT_VERDICTS.get(one.verdict or "", one.verdict or "")
        told = {"phase": name, "before": before, "after": after}
        yield {**told, "ratio [95 %]": _ratio(one), "share": share, "verdict": verdict}


def _surroundings(result: FolderComparison) -> Iterator[str]:
    around, alike = result.surroundings, counted(len(result.surroundings.alike), "fact")
    if result.rows:
        yield f"environment: {f'what differs, beside {alike}' if around.differences else f'equal in all {alike}'} known"
    for one in around.differences:
        rows = "" if len(one.rows) == len(result.rows) else f" ({len(one.rows)} of {len(result.rows)} rows)"
        yield f"- {one.name}: {_values(one.before)} -> {_values(one.after)}{rows}"


def _values(values: Sequence[str]) -> str:
    return ", ".join(few([visible(value, 60) for value in values], MOST_LINES, "{} more")) or UNKNOWN


def _lacking(unjudged: Sequence[Unjudged]) -> Iterator[str]:
    for lack in get_args(Lack):
        texts = [
            f"- {': '.join(filter(None, (one.side, visible(one.name, 200), visible(one.detail, 400))))}"
            for one in unjudged
            if one.lack == lack
        ]
        if texts:
            yield f"{lack} ({len(texts)}):"
            yield from few(texts, MOST_LINES, _REST)


def _needed(rows: Sequence[ComparedRow], margin: float) -> Iterator[str]:
    """How many runs would decide between a difference and equality, where that is open."""
    open_rows = [row for row in rows if not row.decided and row.reason is None]
    if open_rows:
        yield (
            f"{counted(len(open_rows), 'row')} could differ or be equal within {margin:.0%}"
            f"{_runs_text([row.runs_needed for row in open_rows])}"
        )


def _runs_text(needed: Sequence[int | None]) -> str:
    known = [count for count in needed if count is not None]
    if len(known) < len(needed):
        return f"; {MOST_RUNS:,} runs a side would not decide {len(needed) - len(known)} of them"
    return f"; {max(known)} runs a side would likely decide"
