"""Predictions of published RL rows by fits that have not seen them: what is kept back together, one key or two at once.

Two keys at a time make it possible to judge a band on rows that chose nothing of it: errors of the other rows, of which
the band is made, then come from fits that have not seen the judged rows either.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from suite.fitting.rl_fit import Table, fit_rl, predictions
from suite.fitting.rl_rows import RLRow
from suite.planner.jobs import Column
from suite.planner.parameters import Parameters
from suite.planner.rl_parameters import RLParameters

HELD_OUT = ("fifth", "model", "source", "stack")
#: Of these two keys are left out at a time too, since bands are made of them.
BANDED = ("fifth", "model")
_FIFTHS = 5
_REPEATED = re.compile(r"-(all|s2_20|blog|user|before|after)$")


@dataclass(frozen=True)
class KeptBack:
    """Predictions of every measured value: by a fit without its own key (``held``), and, by key, by fits that have seen
    neither their own key nor that one (NaN where a value is of that key)."""

    keys: Sequence[str]
    held: Column
    without: Mapping[str, Column]


@dataclass(frozen=True)
class Held:
    """Predictions of every measured value by fits without its fifth, its model, its source, its stack."""

    table: Table
    by: Mapping[str, KeptBack]


def configuration(row: RLRow) -> str:
    """A configuration's name without what sets its reruns apart."""
    return _REPEATED.sub("", row.config)


def family(model: str) -> str:
    """One name for a model that sources spell apart."""
    plain = "".join(letter for letter in model.lower().split("/")[-1] if letter.isalnum())
    for word in ("instruct", "2507", "base", "bf16", "0324", "math"):
        plain = plain.replace(word, "")
    known = {"30b": "qwen330ba3b", "qwen330b3a": "qwen330ba3b", "30bfp8": "qwen330ba3b", "dsv3": "deepseekv3"}
    known |= {"llama318b": "llama318b", "4b": "qwen34b", "qwen27b": "qwen257b"}
    return known.get(plain, plain)


def keys_of(rows: Sequence[RLRow], name: str) -> list[str]:
    """What of each row is left out together; a fifth is drawn by the configuration's name, reruns with it."""
    if name == "fifth":
        return [str(hashlib.sha256(configuration(row).encode()).digest()[0] % _FIFTHS) for row in rows]
    if name == "model":
        return [family(row.model) for row in rows]
    return [getattr(row, name) for row in rows]


def hold_out(rows: Sequence[RLRow], parameters: Parameters, empty: RLParameters) -> Held:
    """Cross-validation by fifths, models, sources and stacks."""
    by = {name: leave_out_rl(rows, parameters, empty, keys_of(rows, name), twice=name in BANDED) for name in HELD_OUT}
    return Held(Table.of(rows), by)


def leave_out_rl(
    rows: Sequence[RLRow], parameters: Parameters, empty: RLParameters, keys: Sequence[str], twice: bool = False
) -> KeptBack:
    """Every measured value predicted by a fit without the rows that share its key; ``twice`` also without two keys."""
    table, labels = Table.of(rows), np.array(keys)
    of_measured = labels[[each.row for each in table.measured]]
    names = sorted(set(keys))

    def predicted(*gone: str) -> Column:
        kept = [row for row, key in zip(rows, keys, strict=True) if key not in gone]
        if not kept:
            return np.full(len(of_measured), np.nan)
        return predictions(table, parameters, fit_rl(kept, parameters, empty))

    held = np.full(len(of_measured), np.nan)
    for name in names:
        held = np.where(of_measured == name, predicted(name), held)
    without = {name: np.full(len(of_measured), np.nan) for name in names if twice}
    for one, other in combinations(names if twice else (), 2):
        found = predicted(one, other)
        without[one] = np.where(of_measured == other, found, without[one])
        without[other] = np.where(of_measured == one, found, without[other])
    return KeptBack(keys, held, without)
