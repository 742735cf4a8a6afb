"""`python -m suite.fitting.small_to_large FOLDER`: a source's smallest published runs teach what its largest take.

As somebody would who has little of a new stack: all other sources are known, of this one the smallest third of its
runs. Fitting these together is Bayesian updating of what the others say, with the stack's own effect drawn to zero
(``suite.fitting.fit``). Prints the table of docs/arrangements.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suite.fitting.entries import Entry
from suite.fitting.fit import Rows, fit
from suite.fitting.published import csv_files, read_published
from suite.fitting.tables import timed
from suite.planner.jobs import Column
from suite.spec.terminal import say

#: Fewer rows of a source say nothing of small and large.
_LEAST = 6
_SHARE = 3


@dataclass(frozen=True)
class Source:
    """Relative errors of one source's largest runs, before and after its smallest were seen."""

    name: str
    taught: int
    before: Column
    after: Column


def sources(entries: Sequence[Entry]) -> list[Source]:
    """Every source that has small and large runs: the third of least and of most FLOPs of a step."""
    rows = Rows.of(entries)
    jobs = rows.jobs
    work = jobs.global_batch * jobs.sequence * (jobs.layers * jobs.elements + jobs.vocab * jobs.hidden)
    names = np.array([entry.source for entry in entries])
    found = []
    for name in sorted(set(names.tolist())):
        own = np.flatnonzero(names == name)
        order = own[np.argsort(work[own], kind="stable")]
        third = len(order) // _SHARE
        small, large = order[:third], order[-third:]
        if len(own) < _LEAST or work[small].max() >= work[large].min():
            continue
        others = names != name
        taught = others.copy()
        taught[small] = True
        unseen = np.zeros(len(names), bool)
        unseen[large] = True
        before, after = (
            np.abs(fit(rows.take(known)).predict(rows.take(unseen)) / rows.seconds[unseen] - 1)
            for known in (others, taught)
        )
        found.append(Source(name, len(small), before, after))
    return found


def table(found: Sequence[Source]) -> list[str]:
    """Errors in Markdown, percent; the last row is of all."""
    lines = ["| source | taught | predicted | before | after |", "|---|---|---|---|---|"]
    for one in found:
        lines.append(f"| {one.name} | {one.taught} | {len(one.before)} | {_shown(one.before)} | {_shown(one.after)} |")
    before, after = (np.concatenate([getattr(one, name) for one in found]) for name in ("before", "after"))
    taught = sum(one.taught for one in found)
    return [*lines, f"| **all** | {taught} | {len(before)} | {_shown(before)} | {_shown(after)} |"]


def _shown(errors: Column) -> str:
    return f"{100 * float(np.median(errors)):.1f} / {100 * float(np.quantile(errors, 0.9)):.1f}"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, help="folder of CSV files in the published format")
    asked = parser.parse_args()
    for line in table(sources(timed(read_published(csv_files([asked.published]))))):
        say(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
