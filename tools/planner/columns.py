"""Published rows as the planner's columns, where nothing but a job's own numbers is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from suite.planner.work import Column, Jobs, Training

#: What a property is where a row does not say: heads as wide as they are usually, even lengths, one MLP in a block.
_USUAL: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "width": lambda row: row["hidden"],
    "attended": lambda row: row["sequence"],
    **dict.fromkeys(("experts", "experts_per_token", "expert_parallel", "tables"), lambda row: 1.0),
    **dict.fromkeys(("trainer", "plain_model"), lambda row: 0.0),
}


def jobs_of(rows: Sequence[Mapping[str, float]]) -> Jobs:
    """Columns of rows that hold a number for every property, but for those of ``_USUAL``."""
    whole = [{name: usual(row) for name, usual in _USUAL.items()} | dict(row) for row in rows]
    return Jobs(**{field.name: np.array([row[field.name] for row in whole], dtype=float) for field in fields(Jobs)})


def held_of(jobs: Jobs, reference: Any = 0.0) -> dict[str, Column]:
    """What ``Training.held`` is where nothing but a job's sizes is known: no vectors, no critic, no padding.

    Under adapters the model is frozen, and what trains beside it is not worth counting.
    """
    whole = jobs.layers * jobs.elements / (jobs.tensor * jobs.pipeline)
    local = jobs.layers * jobs.local_elements / (jobs.tensor * jobs.pipeline)
    table, alone = jobs.vocab * jobs.hidden / jobs.tensor, jobs.pipeline == 1
    trains = np.where(jobs.low_rank > 0, 0, 1)
    held: dict[str, Column] = {}
    for end in ("first", "last"):
        ends = table * np.where(alone, jobs.tables, 1)
        held |= {
            f"trainable_{end}": trains * (local + ends),
            f"sharded_{end}": trains * (whole + ends),
            f"frozen_{end}": (1 - trains) * (local + ends),
            f"reference_{end}": np.asarray(reference) * (local + ends),
            f"critic_{end}": 0 * local,
        }
    return held


def alone(jobs: Jobs, held_reference: Any = 0.0, **more: Any) -> Training:
    """Jobs as layouts that train, beside a reference or without one."""
    largest = np.maximum(jobs.hidden * jobs.ffn, jobs.vocab * jobs.hidden)
    return Training(jobs=jobs, largest=jobs, held=held_of(jobs, held_reference), largest_tensor=largest, **more)
