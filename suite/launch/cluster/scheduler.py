"""What a cluster's scheduler can be asked, and what it answers, whichever scheduler it is."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import Field

from suite.launch.classify import Pattern
from suite.launch.cluster.submission import Submission
from suite.launch.job import Job
from suite.launch.outcome import EndStatus, Failure
from suite.spec.base import Frozen, UsageError

#: ``over``: nothing of it runs any more. ``gone``: the scheduler does not know it (any more). ``unknown``: not asked.
Phase = Literal["pending", "running", "over", "gone", "unknown"]


class Unanswered(UsageError):
    """A cluster was given a run and did not answer: whether it took it is to be found out."""


class SchedulerState(Frozen):
    """How far a submitted run is, in the scheduler's own words."""

    phase: Phase
    word: str = Field(description="the scheduler's state, e.g. PENDING, Running, OUT_OF_MEMORY")
    detail: str = Field(default="", description="why it waits or ended, where, in one line")
    hopeless: str | None = Field(default=None, description="why a run that is not over can never end well")

    @property
    def is_under_way(self) -> bool:
        return self.phase in ("pending", "running")

    @property
    def line(self) -> str:
        return f"{self.word} {self.detail}".rstrip()


class Stream(NamedTuple):
    """One output of the run, line by line, without what a log collector puts before each line."""

    name: str  # of its log in the bundle: node-0, rank-3, slurm
    lines: Iterable[bytes]
    #: ranks whose output it holds; empty for the scheduler's own
    ranks: tuple[int, ...] = ()


class SchedulerEnd(NamedTuple):
    """What the scheduler itself says of a run's end."""

    status: EndStatus | None  # null: the scheduler does not know any more, the output must tell
    verdict: Failure | None = None  # why, where the scheduler knows: OOM kill, time limit, eviction
    proven: bool = False  # the verdict explains the end by itself, as an OOM kill does, whatever ranks then say
    exit_codes: Mapping[str, int] = {}  # by name of stream, first to end first; negative: signal
    started: float | None = None  # Unix seconds; null: it never ran, or nobody knows
    ended: float | None = None


class Gathered(NamedTuple):
    """All that came back from the cluster."""

    streams: tuple[Stream, ...]
    end: SchedulerEnd
    #: lines that the scheduler's own programs write and that say why a run failed
    patterns: tuple[Pattern, ...] = ()


class Scheduler(Protocol):
    """One way to have a cluster run jobs."""

    name: str
    #: a cluster that was given a run and does not know it after so long did not take it: its own limits are shorter
    settle_seconds: float

    def facts(self, job: Job) -> dict[str, Any]:
        """What environment.json says of where the job is to run, as far as it is known before the job starts."""

    def look(self, submission: Submission) -> SchedulerState:
        """By its id, or by what ``ClusterLauncher.announced`` gave an attempt that has none yet. A run that the
        scheduler has forgotten and whose output is there is over. Raises UsageError when the scheduler cannot be
        asked."""

    def cancel(self, submission: Submission) -> None:
        """Ask for its end; nothing where it is over. Raises UsageError when it cannot be asked or refuses."""

    def printed(self, submission: Submission, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
        """What the run has printed since the last call with this ``place``, at first its last ``lines``; by stream,
        named as its log in a bundle will be. Bounded. Raises UsageError when it cannot be asked for."""

    def keep(self, submission: Submission) -> None:
        """Keep what the run has printed, where its cluster may cut or delete it; called while somebody waits for it.
        Raises as ``printed``."""

    def files(self, submission: Submission) -> list[Path]:
        """What this machine keeps of the run, now or of earlier attempts, until its bundle is made."""

    def gather(self, submission: Submission) -> Gathered:
        """What a run that is over left behind. Raises UsageError when there is nothing to gather."""
