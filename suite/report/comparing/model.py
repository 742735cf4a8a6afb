"""What a comparison holds: every row that both sides measured, what differs around them, and what is left out."""

from typing import Literal

from pydantic import Field

from suite.report.facts.environment import FactKind
from suite.spec.base import Frozen
from suite.stats.compare import DEFAULT_MARGIN, ComparisonVerdict
from suite.stats.multiple import LEVEL, NAME

Side = Literal["before", "after"]
#: Why a row or a bundle cannot be judged, or must not be taken as it is.
Lack = Literal[
    "no partner",
    "ambiguous",
    "failed",
    "damaged",
    "altered",
    "inconsistent",
    "running",
    "missing run",
    "suspect",
    "copies",
    "one run",
]
MemoryVerdict = Literal["more", "less", "not distinguishable"]
GateOutcome = Literal["kept", "below", "undecided"]
GateWord = Literal["met", "slower", "undecided", "doubtful"]


class Unjudged(Frozen):
    """What a gate cannot be met with: a row or a bundle of one side (null: of both), and why."""

    lack: Lack
    side: Side | None
    name: str = Field(description="the row, or the bundle's path")
    detail: str


class FactDifference(Frozen):
    """Something around the measurement that is not the same on both sides of some rows."""

    name: str
    kind: FactKind
    before: tuple[str, ...] = Field(description="distinct values; empty: not told")
    after: tuple[str, ...]
    rows: tuple[str, ...] = Field(description="names of the rows that differ so")


class Surroundings(Frozen):
    """Where, with what and how both sides were measured. ``label`` says what kind of comparison this is."""

    label: str
    alike: tuple[str, ...] = Field(description="facts that are known and equal on both sides of every row")
    differences: tuple[FactDifference, ...]
    same_stack: bool | None = Field(
        default=None, description="whether both sides ran the same code in every row; null: not known"
    )


class Tested(Frozen):
    """A ratio of both sides with its bounds, which hold with those of all of its kind."""

    ratio: float | None
    low: float | None
    high: float | None
    log_error: float | None = Field(description="standard error of the ratio's logarithm; null: it could not be tested")
    degrees: float | None = Field(description="its degrees of freedom")


class ComparedPhase(Tested):
    """One phase of one row: mean seconds per iteration. ``ratio`` is of rates, before over after in seconds: above 1
    is faster. Null where a side did not tell the phase, or took no measurable time in one of its runs."""

    name: str
    before_seconds: float | None
    after_seconds: float | None
    verdict: ComparisonVerdict | None = Field(description="null: it could not be tested")
    share_of_change: float | None = Field(
        description="of the change of the whole iteration; above 1 where others made up for some of it, below 0 where "
        "this one did; null where the whole did not change distinguishably"
    )


class ComparedMemory(Tested):
    """Peaks of memory, mean over the runs. ``ratio`` is after over before: above 1 is more memory."""

    of: Literal["reserved", "resident"] = Field(description="on a GPU by the allocator, on a CPU above the start")
    before_bytes: float
    after_bytes: float
    verdict: MemoryVerdict | None = Field(description="null: it could not be tested")


class RowGate(Frozen):
    """One row against the gate. ``at_least`` and ``at_most``: one-sided bounds of the ratio, null without a spread."""

    outcome: GateOutcome
    at_least: float | None
    at_most: float | None
    runs_needed: int | None = Field(description="runs a side that would likely decide; null: decided, or not known")


class ComparedRow(Tested):
    """One row that both sides have: the rate of the second over that of the first. ``reason``: why there was nothing
    to test."""

    name: str
    size: str
    ranks: int
    backend: str
    layout: str
    variant: str = Field(description="settings that set it apart from rows that look the same; mostly empty")
    runs_before: int
    runs_after: int
    ratio: float
    verdict: ComparisonVerdict
    equivalent: bool | None
    probability: float | None = Field(description="of such a ratio where there is no difference, for this row alone")
    reason: str | None
    runs_needed: int | None = Field(description="runs a side that would likely decide; null: decided, or not known")
    unsteady_before: int = Field(description="runs whose iterations drifted or spread too far")
    unsteady_after: int
    slow_before: int = Field(description="runs that stand apart below the others of their side")
    slow_after: int
    phases: tuple[ComparedPhase, ...]
    memory: ComparedMemory | None
    gate: RowGate | None = None

    @property
    def decided(self) -> bool:
        return self.verdict != "not distinguishable" or bool(self.equivalent)


class FolderComparison(Frozen):
    """Every row that both sides measured. ``unjudged``: all that a gate cannot be met with."""

    rows: tuple[ComparedRow, ...]
    surroundings: Surroundings
    unjudged: tuple[Unjudged, ...]
    margin: float = DEFAULT_MARGIN
    level: float = Field(default=LEVEL, description="error rate that all rows hold together")
    method: str = NAME


class Gate(Frozen):
    """What came of a gate on all rows."""

    gate: float
    phase: str | None = Field(description="whose rate it judges; null: that of the whole iteration")
    outcome: GateWord
    doubts: tuple[str, ...] = Field(description="what a decision by these figures would rest on")
    passed: bool
    missed: int = Field(description="rows below the gate")
    undecided: int
    lost: int = Field(description="undecided rows whose rate is known to be below what it was")
    allow_missing: bool
    strict: bool
