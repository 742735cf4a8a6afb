"""What a cluster launcher brings, and what a cluster's scheduler can be asked. The commands, and all that is done with
bundles, know no more of a cluster than this."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field

from suite.launch.classify import Pattern
from suite.launch.cluster.submission import Submission
from suite.launch.job import Job, Mount, Site
from suite.launch.outcome import EndStatus, Failure
from suite.spec.base import Frozen, UsageError, digest
from suite.spec.manifest import Manifest

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
    ranks: tuple[int, ...] = ()  # whose output it holds; empty for the scheduler's own


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
    patterns: tuple[Pattern, ...] = ()  # lines of the scheduler's own programs that say why a run failed


class Scheduler(Protocol):
    """One way to have a cluster run jobs."""

    name: str
    #: a cluster that was given a run and does not know it after so long did not take it: its own limits are shorter
    settle_seconds: float

    def facts(self, job: Job) -> dict[str, Any]:
        """What environment.json says of where the job is to run, as far as it is known before the job starts."""

    def look(self, submission: Submission) -> SchedulerState:
        """By its id, or by what ``ClusterLauncher.announced`` gave an attempt without one. A run that is forgotten and
        whose output is there is over. Raises UsageError when the scheduler cannot be asked."""

    def cancel(self, submission: Submission) -> None:
        """Ask for its end; nothing where it is over. Raises UsageError when it cannot be asked or refuses."""

    def printed(self, submission: Submission, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
        """What the run has printed since the last call with this ``place``, at first its last ``lines``; by stream,
        named as its log in a bundle will be. Bounded. Raises UsageError when it cannot be asked for."""

    def keep(self, submission: Submission) -> None:
        """Keep what the run has printed, where its cluster may cut or delete it. Raises as ``printed``."""

    def files(self, submission: Submission) -> list[Path]:
        """What this machine keeps of the run, now or of earlier attempts, until its bundle is made."""

    def gather(self, submission: Submission) -> Gathered:
        """What a run that is over left behind. Raises UsageError when there is nothing to gather."""


#: With it every rank's events are in the output, which is all that is sure to come back from a cluster.
EVENTS_ON_OUTPUT = {"SUITE_EVENTS_ON_STDOUT": "all"}


class NodeSetup(NamedTuple):
    """What the ranks find on every node, as the user gave it."""

    python: str
    image: str | None = None
    env: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()


def by_digest_note(image: str) -> tuple[str, ...]:
    """A note where an image is named by what may mean another one tomorrow."""
    told = f"{image} is not named by digest; what it holds may change between runs"
    return () if "@sha256:" in image else (told,)


class Document(NamedTuple):
    """One file that a scheduler takes, and the runs that it starts."""

    name: str
    text: str
    submissions: tuple[Submission, ...]


class ClusterLauncher(ABC):
    """One way to have a cluster run jobs; registered by name in ``registry``. An object holds one command's options.
    Modules of launchers are imported to print help: what is heavy is imported inside of functions."""

    name: ClassVar[str]
    #: who is asked where submitted runs are, whatever the options were
    scheduler: ClassVar[Callable[[], Scheduler]]
    #: settings whose declared fields are the launcher's own options of ``suite submit``, and their HEADING
    options: ClassVar[Any]
    submit_help: ClassVar[str]
    #: what `suite submit --output --json` calls its documents
    documents: ClassVar[str] = "documents"
    #: end of a rendered file's name, the command line that takes the file, and what is between printed documents
    suffix: ClassVar[str]
    command: ClassVar[str]
    separator: ClassVar[str] = ""
    #: `suite submit` waits for each run and collects it, unless --detach is given; otherwise it submits all and returns
    waits: ClassVar[bool] = False
    #: its cluster can keep runs back until others have ended well; of one that does not wait
    chains: ClassVar[bool] = False
    #: for the user to know, a line each
    notes: tuple[str, ...] = ()
    #: how ranks are started, in a word of lower-case letters and digits, and bound: ``srun cpu-bind=cores``; null
    #: where that is its usual way
    starter: str | None = None

    @abstractmethod
    def __init__(self, options: Any, nodes: NodeSetup) -> None:
        """Raises UsageError or pydantic's ValidationError for values that the scheduler would not take."""

    @property
    def manner(self) -> tuple[str, ...]:
        """What a run's id says of ``starter``."""
        first, _, more = (self.starter or "").partition(" ")
        return (first, digest(self.starter)[:6]) if more else (first,) if first else ()

    def connect(self) -> None:  # noqa: B027 (most schedulers are reached by their commands)
        """Reach the cluster before anything is rendered for it. Raises UsageError."""

    @abstractmethod
    def site(self, manifest: Manifest) -> Site:
        """Where the ranks of a run find what they need."""

    @abstractmethod
    def render(self, submissions: Sequence[Submission], root: Path) -> list[Document]:
        """The documents of these runs of the results folder ``root``. Raises UsageError for what it cannot run."""

    def announced(self, document: Document, token: str) -> Document:
        """With what the scheduler will find this attempt by, whatever becomes of the answer: written down before it is
        submitted. ``token``: of this attempt alone, lower-case letters and digits."""
        return document

    @abstractmethod
    def submit(self, document: Document, earlier: Sequence[Submission]) -> tuple[Submission, ...]:
        """Hand an announced document to the cluster; its submissions, with what the scheduler calls them. ``earlier``:
        attempts at these runs, to be cleared away. Raises UsageError, and leaves nothing, where it is refused;
        Unanswered where that cannot be told."""

    @abstractmethod
    def where(self, submission: Submission) -> str:
        """What to call a submitted run in the scheduler's own commands, such as ``job 12``."""

    def by_hand(self, paths: Sequence[Path]) -> list[str]:
        """Lines for a shell that hand rendered files over."""
        return [f"{self.command} {quote(str(path))}" for path in paths]

    def start_after(self, first: Sequence[Submission]) -> None:
        """Have all that is submitted from now on start only when these runs have ended well; of one that ``chains``."""
        raise NotImplementedError

    def sent(self, document: Document) -> list[str]:
        """What a document asks the cluster for, for a dry run: a line each, without the runs' manifests."""
        return [document.name]

    def rendered_json(self, document: Document) -> dict[str, Any]:
        """A document in the output of `suite submit --output --json`."""
        return {"name": document.name, "runs": [each.run_id for each in document.submissions], "text": document.text}

    def submitted_json(self, submissions: Sequence[Submission], statuses: Mapping[str, str]) -> dict[str, Any]:
        """The output of `suite submit --json`. ``statuses``: by run id, ``submitted`` or that of its record."""
        return {"runs": dict(statuses)}
