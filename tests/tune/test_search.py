"""The search of one backend, on made-up rates."""

from __future__ import annotations

import random
from itertools import product

import pytest

from suite.tune.knobs import Value
from suite.tune.search import Searcher
from tests.needs import require_optuna

pytestmark = pytest.mark.packages
KNOBS: dict[str, tuple[Value, ...]] = {
    "zero_stage": (2, 0, 1, 3),
    "micro_batch": (4, 1, 2, 8),
    "packing": (False, True),
    "recompute": ("none", "full"),
    "threads": (1, 2),
}
SETTINGS = {setting: index for index, setting in enumerate(product(*KNOBS.values()))}
RUNGS = (2, 6, 18)


@pytest.fixture(autouse=True)
def with_optuna() -> None:
    require_optuna()


def rate(setting: tuple[Value, ...]) -> float:
    zero, micro, packing, recompute, threads = setting
    factors = {2: 1.0, 0: 1.02, 1: 1.0, 3: 0.9}[int(zero)] * {1: 0.9, 2: 1.05, 4: 1.0, 8: 1.1}[int(micro)]
    return factors * (1.15 if packing else 1) * (0.85 if recompute == "full" else 1) * (1.1 if threads == 2 else 1)


RATES = [rate(setting) for setting in SETTINGS]


def searched(seed: int, most: int, told: int = 0) -> list[tuple[int, int]]:
    """Steps of a search whose rates vary by 2 % from run to run."""
    searcher, noise, steps = Searcher(KNOBS, SETTINGS, RUNGS, seed), random.Random(seed), []
    while len(steps) < most and (step := searcher.next()) is not None:
        steps.append((step.candidate, step.rung))
        searcher.tell(RATES[step.candidate] * noise.lognormvariate(0, 0.02))
    return steps


def seconds_to_find(steps: list[tuple[int, int]]) -> float:
    """Until a row within 3 % of the best was run: starts of 5 s, iterations of 0.3 s."""
    spent = 0.0
    for candidate, rung in steps:
        spent += 5 + 0.3 * (2 + RUNGS[rung])
        if RATES[candidate] >= 0.97 * max(RATES):
            return spent
    raise AssertionError("it was never run")


def test_the_same_seed_takes_the_same_steps_and_begins_with_the_stacks_own_row() -> None:
    assert searched(3, 30) == searched(3, 30)
    assert searched(3, 30) != searched(4, 30)
    assert searched(3, 1) == [(0, 0)]


def test_every_row_is_tried_once_in_the_end_and_slow_ones_get_few_iterations() -> None:
    steps = searched(1, 10_000)
    firsts = [candidate for candidate, rung in steps if rung == 0]
    assert sorted(firsts) == list(range(len(SETTINGS)))
    assert sum(rung == 2 for _, rung in steps) < len(SETTINGS) / 4


def test_a_row_near_the_best_is_found_in_a_third_of_the_time_of_a_grid() -> None:
    """A grid runs each row once, with all iterations, in any order: half of it in the mean before any one row."""
    near = sum(each >= 0.97 * max(RATES) for each in RATES)
    grid = (len(RATES) + 1) / (near + 1) * (5 + 0.3 * (2 + RUNGS[-1]))
    times = [seconds_to_find(searched(seed, 200)) for seed in range(8)]
    assert sum(times) / len(times) < grid / 1.5


def test_a_run_without_a_rate_ends_its_trial() -> None:
    searcher = Searcher(KNOBS, SETTINGS, RUNGS, 1)
    assert searcher.next() == (0, 0)
    searcher.tell(None)
    following = searcher.next()
    assert following is not None and following.candidate != 0 and following.rung == 0
