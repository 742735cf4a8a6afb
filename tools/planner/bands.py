"""80 % bands from errors of rows that no fit had seen, and how many such rows a band holds.

Rows of one group (a source, or a configuration with its reruns) err together, so that each group has the same weight
however many rows it has (Dunn, Wasserman and Ramdas, "Distribution-free prediction sets for two-layer hierarchical
models", 2023). With seven groups or more the ends are order statistics: the next group lies below the i-th of k with a
chance of i / (k + 1) (split conformal: Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005).
With fewer, they are those of Student's t for a row of a new group under random effects of groups (Searle, Casella and
McCulloch, "Variance Components", 1992, chapter 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as student

from suite.planner.jobs import Column
from suite.planner.parameters import Band

LOWEST, HIGHEST = 0.1, 0.9
#: Of so many groups (k - 1) / (k + 1), which is three quarters, of new ones lie between the smallest and the largest.
FEWEST_ORDERED = 7
#: Of one group nothing tells how far another lies.
_FEWEST = 2
_WIDEST = (0.25, 4.0)


def band_of(ratios: Column, groups: Sequence[str], keys: Sequence[str], without: Mapping[str, Column]) -> Band:
    """The band of measured over predicted ``ratios``, each by a fit without its ``key``, and the share that it holds.

    The share is judged on rows that chose nothing: a key's rows in a band of the other keys' ratios, which come from
    fits that have seen neither (``without`` by key, NaN for the key's own).
    """
    own, key = np.array(groups), np.array(keys)
    inside: list[bool] = []
    for name in sorted(set(keys)):
        others = np.isfinite(without.get(name, np.full(len(ratios), np.nan)))
        low, high = ends(without[name][others], own[others]) if others.any() else _WIDEST
        inside += [bool(low <= ratio <= high) for ratio in ratios[key == name]]
    low, high = ends(ratios, own)
    errors = np.abs(1 / ratios - 1)
    return Band(
        low=low,
        high=high,
        rows=len(ratios),
        groups=len(set(groups)),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        held=float(np.mean(inside)) if inside else None,
    )


def ends(ratios: Column, groups: Sequence[str] | np.ndarray) -> tuple[float, float]:
    """Both ends of the band of measured over predicted; as wide as a factor of four where there is one group alone."""
    logs, own = np.log(ratios), np.array(groups)
    count = len(set(own.tolist()))
    if count < _FEWEST:
        return _WIDEST
    found = _ordered(logs, own) if count >= FEWEST_ORDERED else _student(logs, own)
    return float(np.exp(found[0])), float(np.exp(found[1]))


def _ordered(logs: Column, groups: np.ndarray) -> tuple[float, float]:
    """Between order statistics straight lines; a group's rows share the place that one row would have."""
    order = np.argsort(logs, kind="stable")
    names, rows = np.unique(groups, return_counts=True)
    weight = 1 / rows[np.searchsorted(names, groups[order])]
    places = (np.cumsum(weight) + (1 - weight) / 2) / (len(names) + 1)
    low, high = np.interp((LOWEST, HIGHEST), places, logs[order])
    return float(low), float(high)


def _student(logs: Column, groups: np.ndarray) -> tuple[float, float]:
    """Groups scatter about their mean, and rows about their group: a new row's variance is that of both."""
    names, index, rows = np.unique(groups, return_inverse=True, return_counts=True)
    means = np.bincount(index, logs) / rows
    count, more = len(names), len(logs) - len(names)
    within = float(np.square(logs - means[index]).sum()) / more if more else 0.0
    variance = float(means.var(ddof=1)) * (1 + 1 / count) + within * (1 - float(np.mean(1 / rows)))
    reach = float(student.ppf(HIGHEST, count - 1)) * float(np.sqrt(variance))
    return float(means.mean()) - reach, float(means.mean()) + reach
