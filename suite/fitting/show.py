"""A check against published rows as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from suite.fitting.check import Check, Verdict, errors_of
from suite.fitting.rl_check import RLPrediction
from suite.spec.base import printable


def check_lines(check: Check) -> Iterator[str]:
    """Errors per source and overall, and how many rows were left out for which reason."""
    yield f"{'source':<26} {'step time':>26} {'memory':>24} {'fits or not':>22} {'left out':>9}"
    for source, verdict in check.sources.items():
        yield _verdict_line(source, verdict)
    yield _verdict_line("all", check.overall)
    fit = check.overall.fit
    if fit.rows:
        yield (
            f"fits: {fit.fits_as_fits} called fitting, {fit.fits_as_too_large} called too large; "
            f"too large: {fit.too_large_as_too_large} called so, {fit.too_large_as_fits} called fitting"
        )
    yield from _rl_lines(check)
    for reason, count in check.overall.left_out.items():
        yield f"left out {count:>5}: {printable(reason)}"


def _rl_lines(check: Check) -> Iterator[str]:
    """Errors of RL rows by source and kind, and how many lie in their 80 % bands."""
    groups: dict[tuple[str, str], list[RLPrediction]] = {}
    for each in check.rl:
        groups.setdefault((each.source, each.kind), []).append(each)
    if groups:
        yield f"{'RL source':<26} {'what':<12} {'rows':>5} {'median / 90th':>16} {'in band':>8}"
    for (source, kind), found in sorted(groups.items()):
        name = f"{printable(source)[:26]:<26} {kind:<12} {len(found):>5}"
        if kind == "fits":
            yield f"{name} {sum(not each.error for each in found):>6} right"
            continue
        errors = errors_of([each.error for each in found])
        inside = [each.inside for each in found if each.inside is not None]
        spread = f"{100 * (errors.median or 0):.1f} / {100 * (errors.p90 or 0):.1f} %"
        yield f"{name} {spread:>16} {f'{sum(inside)} of {len(inside)}' if inside else '-':>8}"


def _verdict_line(name: str, verdict: Verdict) -> str:
    def errors(rows: int, median: float | None, p90: float | None) -> str:
        return f"{rows} rows {100 * median:.1f} / {100 * p90:.1f} %" if median is not None and p90 is not None else "-"

    step, memory, fit = verdict.step_time, verdict.memory, verdict.fit
    right = f"{fit.rows} rows {100 * fit.accuracy:.1f} %" if fit.accuracy is not None else "-"
    return (
        f"{printable(name)[:26]:<26} {errors(step.rows, step.median, step.p90):>26} "
        f"{errors(memory.rows, memory.median, memory.p90):>24} {right:>22} {sum(verdict.left_out.values()):>9}"
    )
