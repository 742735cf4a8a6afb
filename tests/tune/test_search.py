"""The search of one backend on made-up rates, and what `make tune-check` replays: published rows as sweeps."""

import random
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import pytest

from suite.tune.knobs import Value
from suite.tune.search import Searcher
from tests.needs import require_optuna
from tests.tools.planner.rows import write_rows
from tools.planner.rows import read
from tools.tune_check import RUNGS, Row, Spent, Sweep, in_order, published_sweeps, replay

pytestmark = pytest.mark.packages
KNOBS: dict[str, tuple[Value, ...]] = {
    "zero_stage": (2, 0, 1, 3),
    "micro_batch": (4, 1, 2, 8),
    "packing": (False, True),
    "recompute": ("none", "full"),
    "threads": (1, 2),
}
SETTINGS = {setting: index for index, setting in enumerate(product(*KNOBS.values()))}


@pytest.fixture(autouse=True)
def with_optuna() -> None:
    require_optuna()


def rate(setting: tuple[Value, ...]) -> float:
    zero, micro, packing, recompute, threads = setting
    factors = {2: 1.0, 0: 1.02, 1: 1.0, 3: 0.9}[int(zero)] * {1: 0.9, 2: 1.05, 4: 1.0, 8: 1.1}[int(micro)]
    return factors * (1.15 if packing else 1) * (0.85 if recompute == "full" else 1) * (1.1 if threads == 2 else 1)


RATES = [rate(setting) for setting in SETTINGS]


def steps_of(seed: int) -> Iterator[tuple[int, int]]:
    """Of a search whose rates vary by 2 % from run to run."""
    searcher, noise = Searcher(KNOBS, SETTINGS, RUNGS, seed), random.Random(seed)
    while (step := searcher.next()) is not None:
        yield step.candidate, step.rung
        searcher.tell(RATES[step.candidate] * noise.lognormvariate(0, 0.02))


def test_the_same_seed_takes_the_same_steps_and_begins_with_the_stacks_own_row() -> None:
    first, again, other = (list(islice(steps_of(seed), 25)) for seed in (3, 3, 4))
    assert first == again != other
    assert first[0] == (0, 0)


def test_every_row_is_tried_once_in_the_end_and_slow_ones_get_few_iterations() -> None:
    knobs: dict[str, tuple[Value, ...]] = {"packing": (False, True), "threads": (1, 2), "zero_stage": (2, 3)}
    settings = {setting: index for index, setting in enumerate(product(*knobs.values()))}
    searcher, steps = Searcher(knobs, settings, RUNGS, 1), []
    while (step := searcher.next()) is not None:
        steps.append(step)
        searcher.tell(100.0 - step.candidate)
    assert sorted(step.candidate for step in steps if step.rung == 0) == list(range(len(settings)))
    assert sum(step.rung == 2 for step in steps) <= len(settings) / 2


def made_up(rates: dict[int, float]) -> Sweep:
    """Rows of micro batches, each of one device-second an iteration."""
    rows = [Row({"micro_batch": micro}, rate, (4.0, 8.0, 20.0)) for micro, rate in rates.items()]
    return Sweep("made up", tuple(rows), (3, 2, 1, 0), (0,))


def test_layouts_of_equal_work_are_a_sweep_with_the_planners_order_and_reruns_are_one_row(tmp_path: Path) -> None:
    rows = [
        {"micro_batch": "1", "value": "4"},
        {"micro_batch": "1", "value": "9"},
        {"micro_batch": "2", "value": "5"},
        {"micro_batch": "4", "value": "4", "seq_len": "2048"},
        {"micro_batch": "4", "value": "4", "source_id": "another"},
    ]
    (sweep,) = published_sweeps(read([write_rows(tmp_path / "rows.csv", *rows)]))
    assert [row.choice["micro_batch"] for row in sweep.rows] == [1, 2]
    assert [row.rate for row in sweep.rows] == pytest.approx([128 / 6, 128 / 5])
    assert sweep.rows[1].seconds == pytest.approx([8 * (2 + count) * 5 for count in RUNGS])
    assert sweep.best == 1 and sorted(sweep.planned) == [0, 1]


def test_a_grid_pays_all_iterations_of_each_row_until_one_is_near_the_best() -> None:
    sweep = made_up({1: 1.0, 2: 2.0, 4: 2.95, 8: 3.0})
    assert in_order(sweep, range(4)) == Spent(3, 60.0)
    assert in_order(sweep, reversed(range(4))) == Spent(1, 20.0)


def test_what_the_planner_names_first_is_tried_next_after_the_own_row() -> None:
    found = replay(made_up({1: 1.0, 2: 2.0, 4: 2.5, 8: 3.0}))
    assert found.search == Spent(2, 4 + 8 + 20 + 4), "the own row with all its runs, and a short one of the best"
    assert found.any_order.rows == pytest.approx(2.5, abs=0.3)


def test_a_row_near_the_best_of_many_is_found_long_before_a_grid_has_run_and_before_rows_in_any_order() -> None:
    """Starts of 5 s, iterations of 0.3 s."""
    seconds = tuple(5 + 0.3 * (2 + count) for count in RUNGS)
    rows = [Row(dict(zip(KNOBS, each, strict=True)), rate, seconds) for each, rate in zip(SETTINGS, RATES, strict=True)]
    found = replay(Sweep("made up", tuple(rows), (), (0,)))
    assert found.search.seconds < min(len(rows) * seconds[-1] / 5, found.any_order.seconds / 1.5)
