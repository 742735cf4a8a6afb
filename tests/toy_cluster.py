"""A cluster launcher in one module, whose cluster is a dictionary: what a new launcher has to bring, and no more."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from suite.launch.cluster.launcher import (
    ClusterLauncher,
    Document,
    Gathered,
    NodeSetup,
    Phase,
    SchedulerEnd,
    SchedulerState,
    Stream,
)
from suite.launch.cluster.submission import Submission
from suite.launch.job import Job, Site
from suite.spec.base import Frozen, UsageError
from suite.spec.fields import Declared
from suite.spec.manifest import Manifest
from tests.synthetic import as_lines, rank_events

#: the cluster: what it calls a job -> how far the job is
JOBS: dict[str, Phase] = {}
NAME = "toy"
#: how far a job is that was just submitted
RUNNING: Phase = "running"
#: the one line that registers it
REGISTERED_AS = "tests.toy_cluster:ToyLauncher"


class ToySettings(Frozen):
    """The launcher's own options."""

    HEADING: ClassVar = "Queue"

    lane: Annotated[str, Declared("--lane", "lane of the toy cluster: fast or slow")] = "slow"


class ToyScheduler:
    """Answers from the dictionary."""

    name = NAME
    settle_seconds = 0.0

    def facts(self, job: Job) -> dict[str, Any]:
        return {"toy": True}

    def look(self, submission: Submission) -> SchedulerState:
        phase = JOBS.get(submission.fact("job", str), "gone")
        return SchedulerState(phase=phase, word=phase.upper(), detail=f"in lane {submission.fact('lane', str)}")

    def cancel(self, submission: Submission) -> None:
        JOBS[submission.fact("job", str)] = "over"

    def printed(self, submission: Submission, place: dict[str, Any], lines: int) -> list[tuple[str, list[bytes]]]:
        return []

    def keep(self, submission: Submission) -> None:
        return

    def files(self, submission: Submission) -> list[Path]:
        return []

    def gather(self, submission: Submission) -> Gathered:
        """Every rank's events, or none of a run that was cancelled."""
        manifest, was_cancelled = submission.manifest, submission.fact("job", str).startswith("slow")
        lines = [
            b"::suite:: " + line
            for rank in range(manifest.layout.ranks)
            for line in as_lines(rank_events(manifest, rank, lambda iteration, rank: 1.0)).encode().splitlines(True)
        ]
        if was_cancelled:
            return Gathered((), SchedulerEnd(status="interrupted"))
        streams = (Stream("toy", lines, tuple(range(manifest.layout.ranks))),)
        return Gathered(streams, SchedulerEnd(status="ok", started=1_700_000_000.0, ended=1_700_000_060.0))


class ToyLauncher(ClusterLauncher):
    """Documents are the run ids."""

    name = NAME
    options = ToySettings
    submit_help = "Submit runs to the toy cluster."
    suffix = ".toy"
    command = "toy-submit"

    def __init__(self, options: ToySettings, nodes: NodeSetup) -> None:
        if options.lane not in ("fast", "slow"):
            raise UsageError(f"--lane is fast or slow, not {options.lane!r}")
        self._lane, self._nodes = options.lane, nodes

    @staticmethod
    def scheduler() -> ToyScheduler:
        return ToyScheduler()

    def site(self, manifest: Manifest) -> Site:
        return Site(python=self._nodes.python, bundle=".", python_path="/suite", env=dict(self._nodes.env))

    def render(self, submissions: Sequence[Submission], root: Path) -> list[Document]:
        return [Document(each.run_id, f"run {each.run_id} in {self._lane}\n", (each,)) for each in submissions]

    def submit(self, document: Document, earlier: Sequence[Submission]) -> tuple[Submission, ...]:
        if len(JOBS) == 2:
            raise UsageError("the toy cluster is full: cancel a run first")
        (submission,) = document.submissions
        job = f"{self._lane}-{len(JOBS)}"
        JOBS[job] = RUNNING
        return (submission.with_scheduler(job=job, lane=self._lane),)

    def where(self, submission: Submission) -> str:
        return f"toy job {submission.fact('job', str)}"
