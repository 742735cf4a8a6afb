"""A gate: no row's rate may fall below a share of what it was, and nothing may go missing."""

import math

from suite.report.comparing import model
from suite.report.comparing.judging import run_spread
from suite.report.facts.environment import FactKind
from suite.spec.base import UsageError
from suite.spec.phases import ALL_NAMES
from suite.stats.deciding import runs_to_decide
from suite.stats.multiple import LEVEL, one_sided, together
from suite.stats.quantiles import student_quantile

_CANNOT_TELL = model.RowGate(outcome="undecided", at_least=None, at_most=None, runs_needed=None)
#: What makes figures doubtful that would decide; whatever else is lacking leaves open what it would have shown.
_DOUBTS: dict[model.Lack, str] = {
    "suspect": "suspect runs",
    "altered": "runs whose records were changed",
    "inconsistent": "runs beside bundles that cannot be what a run left",
    "copies": "runs beside copies of them",
}
_UNLIKE: dict[FactKind, str] = {
    "machine": "unlike machines",
    "launch": "unlike launches",
    "state": "unlike states of the machine",
}


def hold_to(
    result: model.FolderComparison,
    gate: float,
    allow_missing: bool = False,
    strict: bool = False,
    same_stack: bool = False,
    phase: str | None = None,
    with_suspect: bool = False,
) -> tuple[model.FolderComparison, model.Gate]:
    """The comparison with each row's outcome, and the outcome of all. ``phase``: whose rate is judged, not that of the
    whole iteration. ``with_suspect``: what disturbs runs is no reason for doubt.

    A row is below the gate where the test of "at least the gate" fails at 5 % in all rows together. It keeps to it
    where it is above it at 5 % by itself: that all rows keep to it is said only where each does, which holds its level
    without a correction (intersection-union test; Berger, Technometrics 24, 1982, p. 295). The others are undecided,
    which fails only with ``strict``, or where there was nothing to test. With ``strict`` an undecided row that is known
    to be slower than before is a loss. What cannot be judged fails unless ``allow_missing``.

    Gate and phase are such as ``check_gate`` takes. Raises UsageError for sides of one stack unless ``same_stack`` says
    that something else is compared: unlike surroundings are then no reason for doubt.
    """
    if result.surroundings.same_stack and not same_stack:
        raise UsageError(
            "both sides ran the same stack, so there is no change for the gate to judge: measure the other one with "
            "--python or --image, or say --same-stack where machines or settings are compared"
        )
    named = [
        (row if phase is None else next((one for one in row.phases if one.name == phase), None)) for row in result.rows
    ]
    parts = [part if part and part.log_error else None for part in named]
    below = [
        one_sided(math.log(gate / part.ratio), part.log_error, part.degrees)
        for part in parts
        if part is not None and part.ratio is not None and part.log_error is not None and part.degrees is not None
    ]
    family = together(below)
    positive = iter(family.positive)
    outcomes = [
        _CANNOT_TELL if part is None else _outcome(part, row, gate, next(positive), family.each)
        for row, part in zip(result.rows, parts, strict=True)
    ]
    rows = tuple(row.model_copy(update={"gate": one}) for row, one in zip(result.rows, outcomes, strict=True))
    missed = sum(one.outcome == "below" for one in outcomes)
    open_parts = [part for part, one in zip(parts, outcomes, strict=True) if one.outcome == "undecided"]
    undecided, lost = len(open_parts), sum(part is not None and part.verdict == "slower" for part in open_parts)
    lacks = set() if allow_missing else {one.lack for one in result.unjudged}
    unlike = set() if same_stack else {one.kind for one in result.surroundings.differences}
    unlike -= {"state"} if with_suspect else set()
    doubts = [words for lack, words in _DOUBTS.items() if lack in lacks]
    doubts += [words for kind, words in _UNLIKE.items() if kind in unlike]
    is_open = None in parts or not lacks <= _DOUBTS.keys() or bool(strict and undecided)
    is_slower = bool(missed or (strict and lost))
    decided: model.GateWord = "slower" if is_slower else "met"
    outcome: model.GateWord = "undecided" if is_open and not is_slower else "doubtful" if doubts else decided
    known = model.Gate(
        gate=gate,
        phase=phase,
        outcome=outcome,
        doubts=tuple(doubts),
        passed=outcome == "met",
        missed=missed,
        undecided=undecided,
        lost=lost,
        allow_missing=allow_missing,
        strict=strict,
    )
    return result.model_copy(update={"rows": rows}), known


def check_gate(gate: float, phase: str | None) -> None:
    """Raises UsageError for a gate that is no share above 0, and for a phase that there is not."""
    if not 0 < gate < math.inf:
        raise UsageError(f"the gate is a share above 0, not {gate:g}")
    if phase not in (None, *ALL_NAMES):
        raise UsageError(f"--gate-phase is one of {', '.join(ALL_NAMES)}, not {phase!r}")


def _outcome(part: model.Tested, row: model.ComparedRow, gate: float, missed: bool, each: float) -> model.RowGate:
    """``each``: the one-sided level at which a row is below the gate. The runs that would decide are those that show of
    an unchanged rate that it keeps to the gate, by the noise alone."""
    ratio, error, degrees = part.ratio, part.log_error, part.degrees
    assert ratio is not None and error is not None and degrees is not None, "only rows with a spread are tested"
    at_least = ratio * math.exp(-student_quantile(degrees, 1 - LEVEL) * error)
    at_most = ratio * math.exp(student_quantile(degrees, 1 - each) * error)
    outcome: model.GateOutcome = "below" if missed else "kept" if at_least >= gate else "undecided"
    needed = None
    if outcome == "undecided":
        spread, lent = run_spread(error, degrees, (row.runs_before, row.runs_after))
        needed = runs_to_decide(abs(math.log(gate)), spread, LEVEL if gate < 1 else each, lent)
    return model.RowGate(outcome=outcome, at_least=at_least, at_most=at_most, runs_needed=needed)
