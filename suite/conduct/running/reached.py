"""What a plan under a stopping rule came to: how narrow each row got, why it ended, and what it took."""

from collections.abc import Callable, Iterator, Sequence

from suite.conduct.planning.plan import Plan
from suite.conduct.running.pursuit import PursuedRow, Pursuit, ending
from suite.conduct.running.session import Summary
from suite.report.formatting.numbers import counted, interval, percent, span
from suite.spec.base import Frozen
from suite.spec.manifest import Stopping
from suite.stats.intervals import Interval


class Against(Frozen):
    """A row's rate over that of the best of its group; ``verdict``: with its interval at 95 %."""

    row: str
    ratio: float
    low: float | None
    high: float | None
    verdict: str
    equivalent: bool | None


class ReachedRow(Frozen):
    """One row at the end. ``half_width`` is relative; ``runs`` are those that count, ``attempts`` all."""

    name: str
    manifest_hash: str
    state: str
    reason: str
    runs: int
    attempts: int
    iterations: tuple[int, ...]
    half_width: float | None
    more_runs: int | None
    more_seconds: float | None
    seconds: float
    against: Against | None


class Reached(Frozen):
    """What was asked for and what came of it; runs and seconds of all rows, those of before in."""

    asked: Stopping
    rows: tuple[ReachedRow, ...]
    runs: int
    seconds: float


def _row(row: PursuedRow, name: str, names: Sequence[str], summary: Summary) -> ReachedRow:
    outlook = row.outlook
    assert outlook is not None, "rows were looked at"
    state: str = "given up" if row.gave_up else outlook.state
    reason = ending(row)
    if state == "more":
        state = "interrupted" if summary.interrupted else "budget spent" if summary.left_by_budget else "not finished"
        reason = f"{reason}; {state}"
    against = None
    if (compared := outlook.comparison) is not None and outlook.against is not None:
        ratio = {"ratio": compared.ratio.value, "low": compared.ratio.low, "high": compared.ratio.high}
        verdict = {"verdict": compared.verdict, "equivalent": compared.equivalent}
        against = Against.model_validate({"row": names[outlook.against], **ratio, **verdict})
    return ReachedRow(
        name=name,
        manifest_hash=row.first.hash,
        state=state,
        reason=reason,
        runs=len(row.sampled.runs),
        attempts=row.sampled.attempts,
        iterations=tuple(dict.fromkeys(len(run.seconds) for run in row.sampled.runs)),
        half_width=outlook.half_width,
        more_runs=outlook.more_runs,
        more_seconds=row.seconds_more,
        seconds=row.seconds,
        against=against,
    )


def follow(pursuit: Pursuit, plan: Plan, work_on: Callable[..., Summary]) -> tuple[Plan, Summary, Reached]:
    """Work on the plan of a pursuit to its end; the plan with all of its runs, and what came of it."""
    summary = work_on(plan.model_copy(update={"manifests": pursuit.manifests}), further=pursuit.more)
    pursuit.look()  # once more, after the last run
    rows, names = pursuit.rows, pursuit.names
    found = Reached(
        asked=pursuit.rule,
        rows=tuple(_row(row, name, names, summary) for row, name in zip(rows, names, strict=True)),
        runs=sum(row.sampled.attempts for row in rows),
        seconds=sum(row.seconds for row in rows),
    )
    return plan.model_copy(update={"manifests": pursuit.manifests}), summary, found


def lines(found: Reached) -> Iterator[str]:
    """For a terminal: a line for each row, then what all took."""
    yield f"asked: {found.asked.text()}"
    for row in found.rows:
        yield f"{row.name}: {row.reason}"
        if row.against is not None:
            yield f"{row.name}: {_verdict(row.against, found.asked.difference)} {row.against.row}"
    yield f"{counted(found.runs, 'run')} in {span(found.seconds)}"


def _verdict(found: Against, margin: float | None) -> str:
    """``0.93 [0.91, 0.95], slower than``."""
    equal = f"equivalent within {percent(margin)} % to" if found.equivalent else ""
    told = f"{found.verdict} than" if found.verdict != "not distinguishable" else ""
    words = " and ".join(filter(None, (told, equal))) or "not distinguishable from"
    return f"{interval(Interval(found.ratio, found.low, found.high))}, {words}"
