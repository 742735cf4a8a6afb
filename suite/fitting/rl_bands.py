"""80 % bands of predictions by kind, from errors of rows that no fit had seen, and how many such rows a band holds.

Rows of one configuration, or of one model, err together, so that a band is made of groups, each with the same weight
however many rows it has (Dunn, Wasserman and Ramdas, "Distribution-free prediction sets for two-layer hierarchical
models", 2023). With seven groups or more its ends are order statistics: the next group lies below the i-th of k with a
chance of i / (k + 1) (split conformal: Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005).
With fewer, even the smallest and the largest are crossed too often, and the ends are those of Student's t for a row of
a new group under random effects of groups (Searle, Casella and McCulloch, "Variance Components", 1992, chapter 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suite.fitting.rl_fit import Table
from suite.fitting.rl_held import KeptBack
from suite.planner.jobs import Column
from suite.planner.rl_parameters import RLBand
from suite.stats.quantiles import student_quantile

LOWEST, HIGHEST = 0.1, 0.9
#: Of so many groups (k - 1) / (k + 1), which is three quarters, of new ones lie between the smallest and the largest.
FEWEST_ORDERED = 7
#: Groups of which a band is made at least.
_FEWEST = 2


def bands_of(table: Table, back: KeptBack, groups: Sequence[str]) -> dict[str, RLBand]:
    """A band for each kind of measurement. ``groups`` are the rows' groups that err together.

    The share held is judged on rows that chose nothing: a key's rows, predicted by the fit without them, in a band of
    the other keys' errors, which come from fits that have seen neither.
    """
    values = np.array([each.value for each in table.measured])
    of_measured = np.array([each.row for each in table.measured])
    group, key = np.array(groups)[of_measured], np.array(back.keys)[of_measured]
    found = {}
    for kind in sorted({each.kind for each in table.measured}):
        of_kind = np.array([each.kind == kind for each in table.measured]) & np.isfinite(back.held)
        if len(set(group[of_kind])) < _FEWEST:
            continue
        inside: list[bool] = []
        for name in sorted(set(key[of_kind]) & set(back.without)):
            others = of_kind & np.isfinite(back.without[name])  # not those of the key itself
            if len(set(group[others])) >= _FEWEST:
                low, high = ends(values[others] / back.without[name][others], group[others])
                judged = of_kind & (key == name)
                inside += [bool(low <= ratio <= high) for ratio in values[judged] / back.held[judged]]
        low, high = ends(values[of_kind] / back.held[of_kind], group[of_kind])
        held = float(np.mean(inside)) if inside else None
        counts = {"rows": int(of_kind.sum()), "groups": len(set(group[of_kind]))}
        found[kind] = RLBand(low=low, high=high, **counts, held=held)
    return found


def band_of(ratios: Column, groups: Sequence[str]) -> RLBand:
    """The band of measured over predicted where hundreds of rows are of many groups: each row weighs as one.

    The share held is of bands made of the other groups' errors. Their fits have seen the group that is judged, since
    fits without two groups would be too dear.
    """
    own, inside = np.array(groups), []
    for name in sorted(set(groups)):
        low, high = ends(ratios[own != name], np.flatnonzero(own != name))
        inside += [bool(low <= ratio <= high) for ratio in ratios[own == name]]
    low, high = ends(ratios, np.arange(len(ratios)))
    return RLBand(low=low, high=high, rows=len(ratios), groups=len(set(groups)), held=float(np.mean(inside)))


def ends(ratios: Column, groups: Sequence[str] | np.ndarray) -> tuple[float, float]:
    """Both ends of the band of measured over predicted from those of at least two groups."""
    logs, own = np.log(ratios), np.array(groups)
    found = _ordered(logs, own) if len(set(groups)) >= FEWEST_ORDERED else _student(logs, own)
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
    reach = student_quantile(count - 1, HIGHEST) * float(np.sqrt(variance))
    return float(means.mean()) - reach, float(means.mean()) + reach
