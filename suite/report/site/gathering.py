"""The runs of many results folders: of those that were read before and are as they were, nothing is read again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suite.bundle.cache.survey import Surveyed
from suite.bundle.cache.table import select
from suite.bundle.evidence import digest_of_all
from suite.bundle.folder import findings_that_leave_out
from suite.bundle.store import DamagedBundle, StillRunning
from suite.report.site.runs import RUNS, RunFacts
from suite.report.reading import ALTERED, RUNNING, Caveat, lines_of


@dataclass
class Gathered:
    """The runs of all folders. ``series`` and ``versions``: what runs share, by the ids that they name. ``told``: what
    a reader must know of the reading, a line each; ``read``: how many bundles were read now; ``is_kept``: all that they
    gave is found again as long as no file changes."""

    runs: list[RunFacts] = field(default_factory=list)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    read: int = 0
    is_kept: bool = False

    @property
    def digest(self) -> str | None:
        """Over the evidence of all runs, as `suite verify` prints it; null where a run has none."""
        digests = [run.trace.digest for run in self.runs]
        return digest_of_all(filter(None, digests)) if digests and None not in digests else None


def gather(bundles: Sequence[Surveyed], is_alone: Callable[[Surveyed], bool]) -> Gathered:
    found = Gathered()
    unread: list[Caveat] = []

    def count(done: int, whole: int) -> None:
        found.read = whole

    for bundle, result in zip(bundles, select(bundles, RUNS, is_alone, count), strict=True):
        if isinstance(result, StillRunning):
            unread.append(Caveat(RUNNING, bundle.path, "left out, because it is still being run"))
        elif isinstance(result, DamagedBundle):
            unread.append(Caveat("damaged", bundle.path, f"left out, damaged: {result}"))
        else:
            found.runs.append(result.facts.at(bundle.path))
            found.series[result.facts.series] = result.series
            found.versions[result.facts.versions] = result.versions
    found.is_kept = not unread and all(one.signature and one.signature.is_settled for one in bundles)
    found.runs.sort(key=lambda run: (run.trace.started or 0.0, run.trace.run_id, run.trace.path.as_posix()))
    found.told = list(lines_of(sorted((*unread, *_leave_out(found)), key=lambda caveat: caveat.kind)))
    return found


def _leave_out(found: Gathered) -> Iterator[Caveat]:
    """Copies and what else does not fit among the runs, told as a report tells it."""
    beside = findings_that_leave_out([run.trace for run in found.runs])
    runs = []
    for run in found.runs:
        wrong = beside.get(run.trace.path)
        if wrong and run.state != "left out":
            run = replace(run, state="left out", note=wrong[0].line(), counted=())
        if run.state == "left out":
            yield Caveat(run.note.partition(":")[0], str(run.trace.path), f"left out, {run.note}")
        if run.caveat:
            yield Caveat(ALTERED, str(run.trace.path), f"{ALTERED}, which are shown: {run.caveat}")
        runs.append(run)
    found.runs = runs
