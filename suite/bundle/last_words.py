"""What the driver writes of a run's end, fit to be read back whatever ranks, containers and schedulers told it."""

from typing import Any

from suite.bundle.parts import MOST_COUNT, MOST_SECONDS
from suite.launch.outcome import Failure, Outcome
from suite.launch.traces import LONGEST_LINE
from suite.spec.redaction import without_secrets

#: A phase's name is shorter; no failure needs more lines.
_LONGEST_PHASE, _MOST_LINES = 80, 500
_MOST_CODE = 1 << 31


def failure_fields(failure: Failure) -> dict[str, Any]:
    """Of the driver's ``failure`` event: short Unicode text without secrets, and an iteration that can be one."""
    iteration = failure.iteration
    return {
        "failure": failure.kind,
        "phase": None if failure.phase is None else _short(failure.phase, _LONGEST_PHASE),
        "iteration": iteration if iteration is not None and 0 <= iteration <= MOST_COUNT else None,
        "evidence": [_short(without_secrets(line), LONGEST_LINE) for line in failure.evidence[:_MOST_LINES]],
    }


def end_fields(outcome: Outcome, ranks: int) -> dict[str, Any]:
    """Of the driver's ``end`` event: exit codes of the ranks that there are, and a time that can be one."""
    codes = [(rank, code) for rank, code in outcome.exit_codes.items() if 0 <= rank < ranks]
    return {
        "status": outcome.status,
        "exit_codes": {str(rank): None if code is None or abs(code) >= _MOST_CODE else code for rank, code in codes},
        "elapsed_seconds": min(outcome.elapsed_seconds, MOST_SECONDS),
    }


def _short(text: str, longest: int) -> str:
    return text[:longest].encode(errors="replace").decode()
