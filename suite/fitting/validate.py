"""Honest errors: rows predicted by parameters that were fitted without them, beside the plain alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from suite.fitting.entries import Entry
from suite.fitting.fit import Rows, fit
from suite.planner.formulas import blocks
from suite.planner.jobs import Column

Predict = Callable[[Rows, Sequence[Entry]], Callable[[Rows, Sequence[Entry]], Column]]


def model(rows: Rows, entries: Sequence[Entry]) -> Callable[[Rows, Sequence[Entry]], Column]:
    """The planner's own model."""
    found = fit(rows)
    return lambda unseen, _: found.predict(unseen)


def constant(*keys: str) -> Predict:
    """One MFU for all rows that agree in ``keys``; for a group never seen, the median of all."""

    def learn(rows: Rows, entries: Sequence[Entry]) -> Callable[[Rows, Sequence[Entry]], Column]:
        shares = np.log(model_seconds(rows) / rows.seconds)
        groups: dict[tuple[object, ...], list[float]] = {}
        for entry, share in zip(entries, shares.tolist(), strict=True):
            groups.setdefault(_key(entry, keys), []).append(share)
        medians, middle = {key: float(np.median(group)) for key, group in groups.items()}, float(np.median(shares))
        return lambda unseen, named_: (
            model_seconds(unseen) / np.exp([medians.get(_key(entry, keys), middle) for entry in named_])
        )

    return learn


def regression(rows: Rows, entries: Sequence[Entry]) -> Callable[[Rows, Sequence[Entry]], Column]:
    """Log-linear least squares on what a spreadsheet would hold, with a constant per device, precision and stack."""
    kinds = sorted({entry.groups["framework|device|precision"] for entry in entries})

    def table(some: Rows, named_: Sequence[Entry]) -> np.ndarray:
        jobs = some.jobs
        columns = [
            np.log(column)
            for column in (
                jobs.hidden,
                jobs.layers,
                jobs.sequence,
                jobs.tensor,
                jobs.pipeline,
                jobs.devices,
                jobs.tokens,
            )
        ]
        ones = [[float(entry.groups["framework|device|precision"] == kind) for entry in named_] for kind in kinds]
        return np.column_stack([np.ones(len(jobs)), *columns, jobs.recompute == 3, np.array(ones).T])

    x, y = table(rows, entries), np.log(rows.seconds / model_seconds(rows))
    weights = np.linalg.solve(x.T @ x + 1e-2 * np.eye(x.shape[1]), x.T @ y)
    return lambda unseen, named_: model_seconds(unseen) * np.exp(table(unseen, named_) @ weights)


def model_seconds(rows: Rows) -> Column:
    """Model FLOPs over the 16-bit peak: seconds at an MFU of one."""
    jobs = rows.jobs
    tokens = jobs.global_batch * jobs.sequence
    per_layer = blocks.linear_flops(tokens, jobs.elements, 1) + blocks.attention_flops(
        tokens, jobs.sequence, jobs.hidden, 1, 0
    )
    forward = jobs.layers * per_layer + blocks.head_flops(tokens, jobs.hidden, jobs.vocab, 1)
    return forward * np.where(jobs.low_rank > 0, 2, 3) / (jobs.devices * jobs.peak)


def leave_out(entries: Sequence[Entry], key: Callable[[Entry], str], learn: Predict = model) -> Column:
    """Seconds of every entry as predicted from all entries that differ from it in ``key``."""
    rows, keys = Rows.of(entries), [key(entry) for entry in entries]
    predicted = np.full(len(entries), np.nan)
    for held in sorted(set(keys)):
        mask = np.array([one == held for one in keys])
        if mask.all():
            continue
        known = [entry for entry, out in zip(entries, mask, strict=True) if not out]
        unseen = [entry for entry, out in zip(entries, mask, strict=True) if out]
        predicted[mask] = learn(rows.take(~mask), known)(rows.take(mask), unseen)
    return predicted


def _key(entry: Entry, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(
        {"device": entry.groups["framework|device"].split("|")[1], "framework": entry.framework}.get(key)
        or (entry.job or {})[key]
        for key in keys
    )
