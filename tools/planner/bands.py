"""80 % bands from errors of rows that no fit had seen, and how many such rows a band holds.

Rows of one group (a source on a device, or a configuration with its reruns) err together, so that each group has the
same weight however many rows it has (Dunn, Wasserman and Ramdas, "Distribution-free prediction sets for two-layer
hierarchical models", 2023). Of many groups the ends are order statistics: the next group lies below the i-th of k with
a chance of i / (k + 1) (split conformal: Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005).

Of few they are those of Student's t for a row of a new group (Searle, Casella and McCulloch, "Variance Components",
1992, chapter 3). How far groups scatter is pooled in part over kinds: a kind's own scatter counts by its groups, and
like ``PRIOR_GROUPS`` more the spread stated among the priors, times what the other kinds come to of theirs (moderated
variances, whose logarithms are averaged without bias: Smyth, Statistical Applications in Genetics and Molecular Biology
3, 2004). The model is thought to be right in the mean, which counts like one group more without error.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import digamma
from scipy.stats import t as student

from suite.planner.parameters import Band, load_priors
from suite.planner.work import Column

LOWEST, HIGHEST = 0.1, 0.9
#: With fewer groups the ends by order are but the smallest and the largest.
FEWEST_ORDERED = 19
PRIOR_GROUPS = 4


class _Scatter(NamedTuple):
    """Of one kind: groups, their mean, squares of their distances from it, and variance of a row within its group."""

    groups: int
    mean: float
    squares: float
    within: float


def bands_of(
    kinds: Sequence[str], ratios: Column, groups: Sequence[str], keys: Sequence[str], without: Mapping[str, Column]
) -> dict[str, Band]:
    """The band by kind of measured over predicted ``ratios``, each by a fit without its ``key``, and the share of rows
    that it holds; NaN where nothing was predicted.

    The share is judged on rows that chose nothing: a key's rows in bands of the other keys' ratios, which come from
    fits that have seen neither (``without`` by key, NaN for the key's own).
    """
    kind, own, key = (np.array(each) for each in (kinds, groups, keys))
    low, high = np.zeros(len(ratios)), np.zeros(len(ratios))
    for name in sorted(set(keys)):
        others = np.isfinite(without[name])
        made = ends(kind[others], without[name][others], own[others])
        for row in np.flatnonzero(key == name):
            low[row], high[row] = made[kind[row]]
    inside, seen = (low <= ratios) & (ratios <= high), np.isfinite(ratios)
    made = ends(kind[seen], ratios[seen], own[seen])
    found = {}
    for name in sorted(set(kind[seen])):
        rows = seen & (kind == name)
        errors = np.abs(1 / ratios[rows] - 1)
        found[str(name)] = Band(
            low=made[name][0],
            high=made[name][1],
            rows=int(rows.sum()),
            groups=len(set(own[rows])),
            median=float(np.median(errors)),
            p90=float(np.quantile(errors, 0.9)),
            held=float(inside[rows].mean()),
        )
    return found


def ends(kinds: Column, ratios: Column, groups: Column) -> dict[str, tuple[float, float]]:
    """Both ends of the band of measured over predicted of every kind; from the prior alone where there is no row."""
    logs, spreads = np.log(ratios), load_priors().spreads
    scatter = {kind: _scatter(logs[kinds == kind], groups[kinds == kind]) for kind in spreads}
    seen = {kind: one for kind, one in scatter.items() if one.squares > 0}
    off = {kind: np.log(one.squares / spreads[kind] ** 2 / 2) - digamma(one.groups / 2) for kind, one in seen.items()}
    found = {}
    for kind, one in scatter.items():
        others = [each for name, each in off.items() if name != kind]
        common = np.exp(sum(others) / max(1, len(others)))
        if one.groups >= FEWEST_ORDERED:
            low, high = _ordered(logs[kinds == kind], groups[kinds == kind])
        else:
            freedom = PRIOR_GROUPS + one.groups
            between = (PRIOR_GROUPS * common * spreads[kind] ** 2 + one.squares) / freedom
            reach = student.ppf(HIGHEST, freedom) * np.sqrt(between * (1 + 1 / (one.groups + 1)) + one.within)
            low, high = one.mean - reach, one.mean + reach
        found[kind] = float(np.exp(low)), float(np.exp(high))
    return found


def _scatter(logs: Column, groups: Column) -> _Scatter:
    names, index, rows = np.unique(groups, return_inverse=True, return_counts=True)
    if not len(names):
        return _Scatter(0, 0.0, 0.0, 0.0)
    means = np.bincount(index, logs) / rows
    mean = float(means.sum()) / (len(names) + 1)
    within = float(np.square(logs - means[index]).sum()) / max(1, len(logs) - len(names))
    squares = float(np.square(means - mean).sum()) + mean**2
    return _Scatter(len(names), mean, squares, within * (1 - float(np.mean(1 / rows))))


def _ordered(logs: Column, groups: Column) -> tuple[float, float]:
    """Between order statistics straight lines; a group's rows share the place that one row would have."""
    order = np.argsort(logs, kind="stable")
    names, rows = np.unique(groups, return_counts=True)
    weight = 1 / rows[np.searchsorted(names, groups[order])]
    places = (np.cumsum(weight) + (1 - weight) / 2) / (len(names) + 1)
    low, high = np.interp((LOWEST, HIGHEST), places, logs[order])
    return float(low), float(high)
