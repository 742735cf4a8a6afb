"""Where the time of a row goes best: into iterations of a run, or into more runs in fresh processes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.moderated import Prior, spread
from suite.stats.rounds import InTurns, starts_of
from suite.stats.turns import dispersion


@dataclass(frozen=True)
class Cost:
    """Seconds of a run: all but its counted iterations (start-up, warm-up, end), and of one of these."""

    start_seconds: float
    iteration_seconds: float

    def run_seconds(self, iterations: int) -> float:
        """A whole run with so many counted iterations."""
        return self.start_seconds + iterations * self.iteration_seconds


@dataclass(frozen=True)
class RowSpread:
    """Variances of a row on the logarithm: of its ``count`` runs, known with so many ``degrees`` of freedom, which had
    so many ``iterations`` in the mean; ``within``: of one iteration in its run, null where a run has one only."""

    count: int
    runs: float
    degrees: float
    within: float | None
    iterations: float

    @property
    def between(self) -> float:
        """What the runs vary by beyond what their iterations explain; at least 0."""
        return self.runs - min(self.runs, (self.within or 0.0) / self.iterations)

    def after(self, more: int, iterations: int) -> float:
        """Variance of the runs when so many with so many iterations have been added."""
        if self.within is None or iterations == self.iterations:
            return self.runs
        added = self.between + (self.runs - self.between) * self.iterations / iterations
        return (self.count * self.runs + more * added) / (self.count + more)


def spread_of(runs: Sequence[RunSeconds], prior: Prior | None = None) -> RowSpread:
    """Of at least two runs, drawn to what the rows of the plan share where there is a prior."""
    found = spread(log_rates(runs), prior)
    lengths = [len(run.seconds) for run in runs]
    within = None
    if min(lengths) > 1:
        within = fmean(spread([math.log(second) for second in run.seconds]).variance for run in runs)
    return RowSpread(len(runs), found.variance, found.degrees, within, fmean(lengths))


def best_iterations(rows: Sequence[tuple[InTurns, Cost]], least: int, most: int) -> int | None:
    """Counted iterations of a run that narrow the intervals of these rows in the least time; null where nothing tells.

    A run of n iterations takes c + n t seconds and its rate has variance b + w / n: b between runs, w within them. The
    time for a given width is proportional to the product, which is least at n = sqrt(c w / (t b)), as in Kalibera and
    Jones, Rigorous Benchmarking in Reasonable Time (ISMM 2013). Rows that are compared get the same number, from the
    means of their variances and costs. ``least`` and ``most`` bound it, because few runs tell b badly.

    Of rows in turns by iteration b and w are of their ratios to the first, between starts and within them, and each has
    its share of what a start costs.
    """
    first = rows[0][0]
    pairs = [pair for row, _ in rows[1:] if (pair := starts_of(row, first))]
    if pairs:
        shared = dispersion(pairs)
        within = fmean(pair.explained * pair.turns / pair.starts for pair in pairs)
        between = fmean(pair.own_variance(shared) for pair in pairs)
    else:
        spreads = [found for row, _ in rows if len(row.runs) > 1 and (found := spread_of(row.runs)).within is not None]
        if not spreads:
            return None
        within, between = fmean(found.within or 0.0 for found in spreads), fmean(found.between for found in spreads)
    if between <= 0:
        return most
    start, each = fmean(cost.start_seconds for _, cost in rows), fmean(cost.iteration_seconds for _, cost in rows)
    return max(least, min(most, round(math.sqrt(start * within / (each * between)))))
