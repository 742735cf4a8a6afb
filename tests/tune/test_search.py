"""The search of one backend, on made-up rates."""

import random
from collections.abc import Iterator
from itertools import islice, product

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
FEW: dict[str, tuple[Value, ...]] = {"packing": (False, True), "threads": (1, 2), "zero_stage": (2, 3)}


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
    settings = {setting: index for index, setting in enumerate(product(*FEW.values()))}
    searcher, steps = Searcher(FEW, settings, RUNGS, 1), []
    while (step := searcher.next()) is not None:
        steps.append(step)
        searcher.tell(100.0 - step.candidate)
    assert sorted(step.candidate for step in steps if step.rung == 0) == list(range(len(settings)))
    assert sum(step.rung == 2 for step in steps) <= len(settings) / 2


def test_a_run_without_a_rate_ends_its_trial() -> None:
    searcher = Searcher(KNOBS, SETTINGS, RUNGS, 1)
    assert searcher.next() == (0, 0)
    searcher.tell(None)
    following = searcher.next()
    assert following is not None and following.candidate != 0 and following.rung == 0
