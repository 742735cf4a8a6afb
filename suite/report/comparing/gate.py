"""A gate: no row's rate may fall below a share of what it was, and nothing may go missing."""

from __future__ import annotations

import math

from suite.report.comparing.model import ComparedRow, FolderComparison, Gate, GateOutcome, RowGate
from suite.report.comparing.verdicts import run_spread
from suite.spec.base import UsageError
from suite.stats.deciding import runs_to_decide
from suite.stats.multiple import LEVEL, one_sided, together
from suite.stats.quantiles import student_quantile

_CANNOT_TELL = RowGate(outcome="undecided", at_least=None, at_most=None, runs_needed=None)


def hold_to(
    result: FolderComparison, gate: float, allow_missing: bool = False, strict: bool = False
) -> tuple[FolderComparison, Gate]:
    """The comparison with each row's outcome, and the outcome of all.

    A row is below the gate where the test of "at least the gate" fails at 5 % in all rows together, so that folders
    that keep to it fail in at most 5 % of cases. It keeps to the gate where it is above it at 5 % by itself: that all
    rows keep to it is said only where each does, which holds its level without a correction (intersection-union test;
    Berger, Technometrics 24, 1982, p. 295). The others are undecided, which fails only with ``strict``. What cannot be
    judged fails unless ``allow_missing``.

    Raises UsageError for a gate that is no share above 0.
    """
    check_gate(gate)
    tested = [row for row in result.rows if row.log_error is not None]
    below = [
        one_sided(math.log(gate / row.ratio), row.log_error, row.degrees)
        for row in tested
        if row.log_error is not None and row.degrees is not None
    ]
    family = together(below)
    positive = iter(family.positive)
    outcomes = [
        _CANNOT_TELL if row.log_error is None else _outcome(row, gate, next(positive), family.each)
        for row in result.rows
    ]
    rows = tuple(row.model_copy(update={"gate": one}) for row, one in zip(result.rows, outcomes, strict=True))
    missed = sum(one.outcome == "below" for one in outcomes)
    undecided = sum(one.outcome == "undecided" for one in outcomes)
    lacking = len(result.unjudged)
    passed = not missed and (allow_missing or not lacking) and not (strict and undecided)
    told = Gate(
        gate=gate,
        passed=passed,
        missed=missed,
        undecided=undecided,
        lacking=lacking,
        allow_missing=allow_missing,
        strict=strict,
    )
    return result.model_copy(update={"rows": rows}), told


def check_gate(gate: float) -> None:
    """Raises UsageError for a gate that is no share above 0."""
    if not 0 < gate < math.inf:
        raise UsageError(f"the gate is a share above 0, not {gate:g}")


def _outcome(row: ComparedRow, gate: float, missed: bool, each: float) -> RowGate:
    """``each``: the one-sided level at which a row of this comparison is below the gate."""
    assert row.log_error is not None and row.degrees is not None, "only rows with a spread are tested"
    at_least = row.ratio * math.exp(-student_quantile(row.degrees, 1 - LEVEL) * row.log_error)
    at_most = row.ratio * math.exp(student_quantile(row.degrees, 1 - each) * row.log_error)
    kept = at_least >= gate
    outcome: GateOutcome = "below" if missed else "kept" if kept else "undecided"
    needed = None
    if outcome == "undecided":
        level = LEVEL if row.ratio >= gate else each
        spread, lent = run_spread(row.log_error, row.degrees, (row.runs_before, row.runs_after))
        needed = runs_to_decide(abs(math.log(row.ratio / gate)), spread, level, lent)
    return RowGate(outcome=outcome, at_least=at_least, at_most=at_most, runs_needed=needed)
