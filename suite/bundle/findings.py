"""What can be wrong with bundles that are whole, each by its name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

_OfClocks = Literal["event-times", "phase-times", "phase-sums", "rank-times", "rank-waits", "copied-rank", "run-times"]
_OfFacts = Literal["stack", "machine", "ceilings", "reward", "noise", "voided", "energy", "lengths"]
#: Within one bundle: what a clock, a barrier or an allocator cannot have given.
Within = Literal[_OfClocks, "memory-peaks", "memory-floor", "work-counts", "periods", "role-times", _OfFacts]
#: Among the bundles of a folder.
OfRuns = Literal["copied-run", "copied-seconds", "run-id", "folder-name", "missing-repeat", "overlapping-runs"]
#: Of a study among its bundles (suite.tune.check).
OfStudies = Literal["study-trial", "study-budget", "study-winner"]
Among = OfRuns | OfStudies
FINDINGS: tuple[str, ...] = (*get_args(Within), *get_args(OfRuns))
#: What says nothing against the run's own figures: reports show it and keep the run.
_STANDS = frozenset(("work-counts", "folder-name", "missing-repeat", "overlapping-runs"))


@dataclass(frozen=True)
class Finding:
    """One thing that does not fit, with the values that do not."""

    name: Within | Among
    text: str

    @property
    def leaves_out(self) -> bool:
        """Whether a report is made without the run."""
        return self.name not in _STANDS

    def line(self) -> str:
        return f"{self.name}: {self.text}"


def one_of(name: Within, texts: Iterable[str]) -> Iterator[Finding]:
    """One finding for all of a kind: the first, and how many more."""
    found = list(texts)
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield Finding(name=name, text=f"{found[0]}{more}")
