"""Rates of every configuration, failed ones too, and as DeepSpeed-Chat counts them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import prose
from suite.report.formatting.grid import Column, Notes
from suite.report.formatting.numbers import UNKNOWN, number, percent
from suite.report.text.columns import IDENTITY, LABEL, Shown, common, rate, table_of, varying
from suite.report.text.section import Block, Picture, Section

_MOST_NAMED = 12
#: The phases that DeepSpeed-Chat adds up.
_KEPT = ("generate", "train")
_VOID = "Iterations that do not count, because optimizer steps were skipped in them (overflow at the loss scale)"
_SHARED = "The bounds draw on what all rows of a machine vary by: fewer rows beside them give other bounds."
_ABOVE_PEAK = "Above 100 %, which no device can reach: doubt time, the device's name or, in older runs in fp32, TF32"


def _blocks(model: ReportModel) -> Iterator[Block]:
    shared = common(model.rows)
    yield f"All rows: {', '.join(shared)}." if shared else "The rows share no setting."
    rows, notes = model.rows, Notes()
    causal = any(row.hfu_causal is not None for row in rows)
    columns: list[Shown] = [
        *IDENTITY,
        *varying(rows),
        (Column("runs ok"), lambda row: row.ok_runs),
        (Column("samples/s [95 %]"), rate),
    ]
    columns += [
        (Column("tokens/s"), lambda row: number(row.tokens_per_second.value if row.tokens_per_second else None)),
        (Column("tokens/s/device"), lambda row: number(_per_device(row))),
    ]
    if any(rate is not None for row in rows for rate in (row.mfu, row.hfu, row.mbu)):
        title = f"MFU / {'HFU / HFU causal' if causal else 'HFU'} / MBU %"
        columns.append((Column(title), lambda row: _utilisation(row, causal, notes)))
    columns.append((Column("steady", False), lambda row: _steady(row, notes)))
    table = table_of(columns, rows, notes)
    few = [row.name for row in rows if 0 < len(row.measured) < RUNS_TO_PUBLISH]
    void = [f"{row.name} ({row.void_iterations})" for row in rows if row.void_iterations]
    below = [f"Fewer than {RUNS_TO_PUBLISH} runs, too few to publish: {_named(few)}."] if few else []
    below += [f"{_VOID}: {_named(void)}."] if void else []
    below += [_SHARED] if any(row.prior for row in rows) else []
    yield replace(table, notes=(*table.notes, *below))


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} rows"


def _per_device(row: Row) -> float | None:
    return row.tokens_per_second_per_device.value if row.tokens_per_second_per_device else None


def _utilisation(row: Row, causal: bool, notes: Notes) -> str:
    rates = (row.mfu, row.hfu, *([row.hfu_causal] if causal else []), row.mbu)
    figures = UNKNOWN if set(rates) == {None} else " / ".join(percent(rate) for rate in rates)
    reasons = []
    if row.unknown_utilisation:
        reasons.append(row.unknown_utilisation[:1].upper() + row.unknown_utilisation[1:])
    if any(rate is not None and rate > 1 for rate in rates):
        reasons.append(_ABOVE_PEAK)
    return " ".join([figures, *map(notes.mark, reasons)])


def _steady(row: Row, notes: Notes) -> str:
    """``steady``, or how many runs were what, with the reasons below."""
    verdicts = [verdict if len(row.verdicts) == 1 else f"{count} {verdict}" for verdict, count in row.verdicts]
    text = ", ".join(verdicts) or UNKNOWN
    if not row.unsteady_reasons:
        return text
    return " ".join([text, *(notes.mark("Steady: " + prose(reason)) for reason in row.unsteady_reasons)])


def _alone(model: ReportModel) -> Iterator[Block]:
    """Rows that no other row can be compared with, where the report compares others."""
    works = {row.work_hash for row in model.rows if row.measured}
    if not model.alone or not (model.ranking.groups or len(works) > 1):
        return
    columns: list[Shown] = [
        *IDENTITY,
        *varying(model.alone),
        (Column("work", False), lambda row: row.work_hash[:8]),
        (Column("samples/s [95 %]"), rate),
    ]
    yield "Not compared, because no other row did equal work on as many ranks under equal conditions:"
    yield table_of(columns, model.alone)


APART = Section(None, _alone)
SECTION = Section(
    "Throughput", _blocks, Picture("throughput", "Samples per second by model size, one panel per rank count")
)


def _without_scoring(model: ReportModel) -> Iterator[Block]:
    """DeepSpeed-Chat's figures beside those of the whole iteration."""
    rows = [row for row in model.rows if row.separate_critic and row.phases and not row.setting.asynchronous]
    columns: tuple[Shown, ...] = (
        (Column("samples/s [95 %]"), rate),
        (Column("samples/s of generate + train"), _kept_rate),
        (Column("left out %"), _left_out),
    )
    if rows:
        yield "DeepSpeed-Chat's own figures add up generation and training and leave the scoring passes out. Both ways:"
        yield table_of([LABEL, *columns], rows)


def _kept_seconds(row: Row) -> float | None:
    found = [phase.seconds for phase in row.phases if phase.name in _KEPT]
    return sum(found) if len(found) == len(_KEPT) else None


def _kept_rate(row: Row) -> str:
    seconds = _kept_seconds(row)
    return number(row.samples_per_iteration / seconds if seconds and row.samples_per_iteration else None)


def _left_out(row: Row) -> str:
    seconds = _kept_seconds(row)
    return percent(1.0 - seconds / row.iteration_seconds if seconds and row.iteration_seconds else None)


WITHOUT_SCORING = Section(None, _without_scoring)
