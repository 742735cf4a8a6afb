"""Everything fitted, and scored on what no fit had seen: whole sources left out, or configurations of known ones.

A score of a source comes from constants, effects and memory fitted without it; priors are never touched. A band that a
source is judged in comes from the errors of the other sources, by fits that have seen neither.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from suite.planner.parameters import Band, Bands, load_priors
from suite.planner.work import Column
from tools.planner.bands import bands_of
from tools.planner.entries import Entry
from tools.planner.iteration_fit import Table, fit_iterations
from tools.planner.memory_fit import fit_memory, peaks, work_of
from tools.planner.rows import Published, configuration
from tools.planner.step_fit import Fitted, Rows, fit

#: Configurations are left out by so many parts, drawn by their names.
_PARTS = 5


@dataclass(frozen=True)
class Model:
    """All constants and effects."""

    values: Mapping[str, float]
    effects: Mapping[str, Mapping[str, float]]
    steps: Fitted


@dataclass(frozen=True)
class Value:
    """One published value: of which kind, source, configuration, stack and device."""

    kind: str
    source: str
    config: str
    model: str
    stack: str
    device: str
    measured: float


def fit_all(published: Published, steps: Fitted | None = None) -> Model:
    """Training steps first, on their own; memory; then what an iteration adds, with both as they are."""
    found = steps or fit(Rows.of(published.timed))
    before = {name: prior.centre for name, prior in load_priors().every.items()}
    memory = fit_memory(published.entries, published.rows) if published.entries or published.rows else {}
    known = {**before, **found.values, **memory}
    values, effects = fit_iterations(published.rows, known) if published.rows else ({}, {})
    return Model({**known, **values}, {**found.effects, **effects}, found)


def values_of(published: Published) -> list[Value]:
    """Every value that a prediction stands beside, in the order of ``predictions``."""
    found = [_of_entry("step", entry, entry.step_seconds) for entry in published.timed]
    table = Table.of(published.rows)
    for each in table.measured:
        row = table.rows[each.row]
        device = row.device.split("-")[0]
        found.append(Value(each.kind, row.source, configuration(row), row.model, row.stack, device, each.value))
    return [*found, *(_of_entry("memory", entry, entry.peak_memory_bytes) for entry in _peaked(published))]


def _of_entry(kind: str, entry: Entry, measured: float | None) -> Value:
    device = entry.groups["framework|device"].split("|")[1]
    return Value(kind, entry.source, entry.config, entry.model, entry.framework, device, measured or 0.0)


def predictions(published: Published, model: Model) -> Column:
    """What a model says of every value."""
    table = Table.of(published.rows)
    with np.errstate(all="ignore"):
        told = table.picked(table.predicted(model.values, model.effects)) if published.rows else np.zeros(0)
        steps = model.steps.predict(Rows.of(published.timed)) if published.timed else np.zeros(0)
        peaked = _peaked(published)
        memory = peaks(work_of(peaked), model.values) if peaked else np.zeros(0)
    return np.concatenate([steps, told, memory])


def _peaked(published: Published) -> list[Entry]:
    return [entry for entry in published.entries if entry.job and entry.peak_memory_bytes]


@dataclass(frozen=True)
class Scores:
    """Values with what was predicted of each by fits without its source, and without its configuration."""

    values: list[Value]
    new: Column
    known: Column
    bands: dict[str, Bands]


def score(published: Published) -> Scores:
    """Leave every source out in turn, and every part of the configurations."""
    values = values_of(published)
    sources = [value.source for value in values]
    parts = [_part(value.source, value.config) for value in values]
    steps = _StepFits()
    new, apart = _left_out(published, values, sources, lambda names: published.without(*names), steps)
    known, within = _left_out(published, values, parts, lambda names: _without_parts(published, names), steps)
    # Rows of one stack on one device err together; what a band holds is judged by whole sources.
    together = [f"{value.source}|{value.device}" for value in values]
    configs = [f"{value.source} {value.config}" for value in values]
    kinds, measured = [value.kind for value in values], np.array([value.measured for value in values])

    def made(predicted: Column, groups: list[str], keys: list[str], rest: dict[str, Column]) -> dict[str, Band]:
        without = {name: measured / column for name, column in rest.items()}
        return bands_of(kinds, measured / predicted, groups, keys, without)

    wide, narrow = made(new, together, sources, apart), made(known, configs, parts, within)
    bands = {kind: Bands(new=wide[kind], known=narrow[kind]) for kind in wide}
    return Scores(values, new, known, bands)


def _part(source: str, config: str) -> str:
    return str(hashlib.sha256(f"{source} {config}".encode()).digest()[0] % _PARTS)


def _without_parts(published: Published, names: Sequence[str]) -> Published:
    entries = tuple(entry for entry in published.entries if _part(entry.source, entry.config) not in names)
    rows = tuple(row for row in published.rows if _part(row.source, configuration(row)) not in names)
    return Published(entries, rows, (), "")


class _StepFits:
    """Fits of training steps, each made once: most sources of iterations have no training steps."""

    def __init__(self) -> None:
        self.made: dict[tuple[tuple[str, str], ...], Fitted] = {}

    def of(self, rest: Published) -> Fitted:
        key = tuple((entry.source, entry.config) for entry in rest.timed)
        if key not in self.made:
            self.made[key] = fit(Rows.of(rest.timed))
        return self.made[key]


def _left_out(
    published: Published,
    values: Sequence[Value],
    keys: Sequence[str],
    rest: Callable[[Sequence[str]], Published],
    steps: _StepFits,
) -> tuple[Column, dict[str, Column]]:
    """Predictions of every value by a fit without its key, and, by key, by fits that have seen neither their own key
    nor that one (NaN where a value is of that key, or the pair has no kind of value in common)."""
    own, names = np.array(keys), sorted(set(keys))
    kinds = {name: {value.kind for value, key in zip(values, keys, strict=True) if key == name} for name in names}

    def predicted(*gone: str) -> Column:
        """Where only training steps were taken away, nothing else of the model is asked."""
        if set.union(*(kinds[name] for name in gone)) == {"step"}:
            found = np.full(len(values), np.nan)
            found[: len(published.timed)] = steps.of(rest(gone)).predict(Rows.of(published.timed))
            return found
        return predictions(published, fit_all(rest(gone), steps.of(rest(gone))))

    held = np.full(len(values), np.nan)
    without = {name: np.full(len(values), np.nan) for name in names}
    for name in names:
        held = np.where(own == name, predicted(name), held)
    for one, other in combinations(names, 2):
        if not kinds[one] & kinds[other]:
            continue
        found = predicted(one, other)
        without[one] = np.where(own == other, found, without[one])
        without[other] = np.where(own == one, found, without[other])
    return held, without
