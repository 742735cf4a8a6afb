"""What a report shows on a terminal: the widest form of its headline table that fits it."""

from collections.abc import Sequence

from suite.bundle.imported.record import MARK
from suite.report.facts.entry import grouped
from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import plain, visible
from suite.report.formatting.forms import Cells, Form, print_line, print_widest, without
from suite.report.formatting.numbers import UNKNOWN, counted, gib, interval, number
from suite.report.text.answer import MOST_SHOWN, Verdict, figures, nothing_ranked, scope, trust, verdicts_of
from suite.report.text.section import rate, shown
from suite.spec.terminal import say
from suite.spec.width import terminal_columns, wrapped

HEADLINE_ROWS = 40
#: Columns that go first where there is no room for all.
_LEAST_FIRST = ("tokens/s", "runs ok", "peak GiB", "eta")
#: The one kind of work that needs no line above its table: all that once could be measured.
_UNSAID = "PPO on GPT-2"
_NAME_LENGTH = 24
_SHORT_VERDICTS = {"not distinguishable": "unclear", "too few runs": "too few"}


def print_answer(model: ReportModel) -> None:
    """What every view opens with: who is faster, then scaling, memory and cost, and how far to trust it."""
    width = terminal_columns()
    verdicts = verdicts_of(model)
    shown = verdicts[:MOST_SHOWN]

    def print_wrapped(text: str) -> None:
        say("\n".join(wrapped(plain(text), width, rest="  ")))

    print_wrapped(scope(model))
    for where in dict.fromkeys(one.where for one in shown):
        if where:
            print_wrapped(f"{where}:")
        alike = [one for one in shown if one.where == where]
        cells = [{title: plain(text) for title, text in without(one.cells(), "work").items()} for one in alike]
        print_widest([Form(cells, compact=False), Form(cells), Form([_short(one) for one in alike])])
    if len(verdicts) > MOST_SHOWN:
        say(f"and {len(verdicts) - MOST_SHOWN} more in the report")
    for line in (*([] if shown else [nothing_ranked(model)]), *figures(model), trust(model).text):
        print_wrapped(line)


def _short(one: Verdict) -> Cells:
    """For a narrow terminal; what is remarked of some rows is in the line of trust."""
    cells = {
        "size": f"{one.size} x{one.ranks}",
        "who is faster": one.faster.replace(", over ", "\nover "),
        "by [95 %]": one.by,
        "how sure": f"{_SHORT_VERDICTS.get(one.confidence, one.confidence)},\n{counted(one.runs, 'run')}",
        "mostly in": one.phase,
    }
    return {title: plain(text) for title, text in cells.items()}


def headline_rows(model: ReportModel) -> list[Cells]:
    verdicts = {row.number: UNKNOWN if row.is_ranked else "suspect" for row in model.rows}
    for group in model.ranking.groups:
        short = {**_SHORT_VERDICTS, "not distinguishable": "equal"} if group.is_equal else _SHORT_VERDICTS
        verdicts |= {one.row.number: short.get(one.verdict, one.verdict) for one in group.places}
    etas = {point.row.number: point.eta for curve in model.scaling for point in curve.points}
    alike = grouped(((row.work, row.size, row.ranks, row.backend, row.layout), row) for row in model.rows)
    several = [same for same in alike.values() if len({(row.launch.launcher, row.variant) for row in same}) > 1]
    apart = {row.number: row.variant or f"launcher={row.launch.launcher}" for same in several for row in same}
    return [
        {
            "size": visible(row.size, _NAME_LENGTH),
            "ranks": str(row.ranks),
            "backend": visible(row.backend, _NAME_LENGTH),
            "layout": row.layout,
            **({"variant": visible(apart.get(row.number, UNKNOWN), _NAME_LENGTH)} if apart else {}),
            "runs ok": row.ok_runs,
            "samples/s [95 %]": rate(row),
            "tokens/s": shown("tokens_per_second.value")(row),
            "peak GiB": shown("memory.peak_bytes", gib)(row),
            "eta": interval(etas.get(row.number), 1),
            "verdict": verdicts[row.number],
        }
        for row in model.rows
    ]


def print_headline(model: ReportModel) -> None:
    rows = headline_rows(model)
    shown_rows = zip(model.rows[:HEADLINE_ROWS], rows, strict=False)
    for work, alike in grouped((row.work, cells) for row, cells in shown_rows).items():
        if model.several_kinds or work.text != _UNSAID:
            print_line(f"{work.text}:")
        print_widest(_headline_forms(alike))
    if len(rows) > HEADLINE_ROWS:
        say(f"and {len(rows) - HEADLINE_ROWS} more rows in the report")


def _headline_forms(rows: Sequence[Cells]) -> list[Form]:
    """All of it, then without eta's bounds and one column after another, empty ones first."""
    short = [{**row, "eta": row["eta"].partition(" ")[0]} for row in rows]
    order = sorted(_LEAST_FIRST, key=lambda title: any(row[title] != UNKNOWN for row in rows))
    gone = [tuple(order[:count]) for count in range(1, len(order) + 1)]
    less = (Form([without(row, *titles) for row in short], left_out=titles) for titles in gone)
    return [Form(rows, compact=False), Form(rows), *less]


def print_imported(model: ReportModel) -> None:
    if not model.imported:
        return
    print_line(f"{MARK} (figures are those of the tool's own log; in no ranking and no verdict):")
    shown = [
        {
            "backend": record.tool,
            "size": visible(record.told.model, _NAME_LENGTH),
            "devices": str(record.told.devices),
            "s/step": number(record.step_seconds),
            "samples/s": number(record.throughput.samples_per_second),
            "tokens/s": number(record.throughput.tokens_per_second),
        }
        for record in (row.record for row in model.imported[:HEADLINE_ROWS])
    ]
    print_widest([Form(shown, compact=False), Form(shown)])
    if len(model.imported) > HEADLINE_ROWS:
        say(f"and {len(model.imported) - HEADLINE_ROWS} more imported rows in the report")
