"""Each algorithm against loops over lists, written from the papers' formulas, and what the driver reads of it.

Samples are uneven, padded and on two replicas; a group lies across both. An algorithm is added by its file alone.
"""

import math
import shutil
import sys
from pathlib import Path
from statistics import fmean, pstdev, stdev
from typing import Any

import pytest

from suite.spec.algorithms import Algorithm, declarations, find_algorithm
from suite.spec.workload import PPO_ALGORITHM
from suite.worker import algorithms
from suite.worker.algorithms import build_algorithm
from tests.worker.algorithms.plain import Batch, algorithm_of, batch, by_sample, clipped, k3, step_loss
from tests.worker.tiny import tiny_body

REPLICAS = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def grpo_advantages(whole: Batch, scale: bool) -> list[float]:
    found = []
    for number, score in enumerate(whole.scores):
        first = number // whole.group * whole.group
        others = whole.scores[first : first + whole.group]
        found.append((score - fmean(others)) / ((stdev(others) + 1e-4) if scale else 1))
    return found


def grpo_loss(whole: Batch, options: dict[str, Any]) -> float:
    advantages = grpo_advantages(whole, options["scale"])
    by_row = []
    for advantage, now, old, reference in zip(advantages, whole.now, whole.old, whole.reference, strict=True):
        by_row.append(
            [
                -clipped(math.exp(new - before), advantage, options["clip_low"], options["clip_high"])
                + options["kl_coefficient"] * k3(new, other)
                for new, before, other in zip(now, old, reference, strict=True)
            ]
        )
    if options["loss"] == "sequence":
        return fmean(fmean(row) for row in by_row)
    return fmean(term for row in by_row for term in row)


@pytest.mark.parametrize(
    "text",
    [
        "grpo",
        "grpo:loss=sequence",
        "grpo:scale=no,clip_high=0.28",
        "grpo:kl_coefficient=0.1",
        "grpo:kl_coefficient=0.1,loss=sequence,clip_low=0.1",
    ],
)
def test_grpos_loss_of_a_step_is_that_of_the_papers(text: str) -> None:
    whole, options = batch(2, groups=3, group=4), dict(Algorithm.model_validate(text).options)
    for micro_rows in (1, 2, 3):
        loss, parts, _ = step_loss(whole, REPLICAS, algorithm_of(text), micro_rows)
        assert loss == pytest.approx(grpo_loss(whole, options), rel=1e-5)
        assert loss == pytest.approx(parts["policy_loss"] + options["kl_coefficient"] * parts.get("kl_loss", 0))
        assert 0 < parts["clip_share"] < 1


def test_one_gradient_follows_from_any_division_into_replicas_and_micro_batches() -> None:
    whole, algorithm = batch(3, groups=2, group=6), algorithm_of("grpo:kl_coefficient=0.1,loss=sequence")
    one = step_loss(whole, [list(range(12))], algorithm, 12)[2]
    shuffled = step_loss(whole, [[11, 0, 5, 7, 2, 9], [1, 10, 3, 4, 8, 6]], algorithm, 2)[2]
    for number, gradient in one.items():
        assert shuffled[number] == pytest.approx(gradient, rel=1e-4, abs=1e-8)


def rloo_advantages(whole: Batch, kl_coefficient: float) -> list[float]:
    rewards = [
        score - kl_coefficient * math.fsum(a - b for a, b in zip(old, reference, strict=True))
        for score, old, reference in zip(whole.scores, whole.old, whole.reference, strict=True)
    ]
    found = []
    for number, reward in enumerate(rewards):
        first = number // whole.group * whole.group
        found.append(reward - fmean(rewards[each] for each in range(first, first + whole.group) if each != number))
    return found


@pytest.mark.parametrize("coefficient", [0.0, 0.05, 2.0])
@pytest.mark.parametrize("group", [2, 4, 6])
def test_rloos_baseline_is_the_mean_of_the_others_wherever_they_lie(coefficient: float, group: int) -> None:
    whole = batch(1, groups=12 // group, group=group)
    found = by_sample(whole, REPLICAS, algorithm_of(f"rloo:kl_coefficient={coefficient}"))
    expected = dict(enumerate(rloo_advantages(whole, coefficient)))
    assert {number: each[0] for number, each in found.items()} == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("micro_rows", [1, 2, 6])
def test_rloos_loss_is_the_mean_over_samples_of_the_clipped_ratio_of_whole_responses(micro_rows: int) -> None:
    whole = batch(2, groups=3, group=4)
    terms = [
        -clipped(math.exp(math.fsum(now) - math.fsum(old)), advantage, 0.2, 0.3)
        for advantage, now, old in zip(rloo_advantages(whole, 0.05), whole.now, whole.old, strict=True)
    ]
    loss, parts, _ = step_loss(whole, REPLICAS, algorithm_of("rloo:clip_high=0.3"), micro_rows)
    assert loss == pytest.approx(fmean(terms), rel=1e-5) == parts["policy_loss"]


def reinforce_advantages(whole: Batch, kl_coefficient: float) -> list[list[float]]:
    returns = []
    for score, old, reference in zip(whole.scores, whole.old, whole.reference, strict=True):
        penalties = [kl_coefficient * (a - b) for a, b in zip(old, reference, strict=True)]
        returns.append([score - math.fsum(penalties[token:]) for token in range(len(old))])
    everything = [each for row in returns for each in row]
    mean, deviation = fmean(everything), pstdev(everything)
    return [[(each - mean) / deviation for each in row] for row in returns]


@pytest.mark.parametrize("micro_rows", [1, 2, 6])
def test_reinforce_plus_plus_loss_is_the_mean_over_tokens_of_the_clipped_objective(micro_rows: int) -> None:
    whole = batch(2, groups=12, group=1)
    terms = [
        -clipped(math.exp(new - before), advantage, 0.2, 0.2)
        for row, now, old in zip(reinforce_advantages(whole, 0.01), whole.now, whole.old, strict=True)
        for advantage, new, before in zip(row, now, old, strict=True)
    ]
    loss, _, _ = step_loss(whole, REPLICAS, algorithm_of("reinforce++"), micro_rows)
    assert loss == pytest.approx(fmean(terms), rel=1e-4)


@pytest.mark.parametrize("text", ["grpo", "rloo:kl_coefficient=0", "reinforce++:kl_coefficient=0"])
@pytest.mark.parametrize("score", [0.5, 0.1, 3e7])
def test_equal_scores_without_kl_give_advantages_of_zero_and_a_loss_that_is_a_number(text: str, score: float) -> None:
    whole = batch(4, groups=2, group=6, scores=[score] * 12)
    found = by_sample(whole, REPLICAS, algorithm_of(text))
    assert {value for each in found.values() for value in each} == {0.0}
    loss, _, gradients = step_loss(whole, REPLICAS, algorithm_of(text), 3)
    assert loss == 0
    assert not any(any(row) for row in gradients.values())


def built(algorithm: Algorithm) -> object:
    return build_algorithm({"algorithm": algorithm.model_dump(mode="json"), "ppo": {}})


@pytest.mark.parametrize("name", declarations())
def test_the_worker_learns_values_and_asks_the_reference_as_the_driver_expects(name: str) -> None:
    declared = find_algorithm(name)
    found = [Algorithm(name=name)]
    if declared.reference is not None:
        found += [Algorithm(name=name, options={declared.reference: number}) for number in (0, 0.5)]
    for algorithm in found:
        assert built(algorithm).uses_values == declared.values  # type: ignore[attr-defined]
        assert built(algorithm).uses_reference == algorithm.uses_reference  # type: ignore[attr-defined]


def test_ppo_has_no_options_here_so_that_old_manifests_are_ppos() -> None:
    assert Algorithm.model_validate("ppo") == PPO_ALGORITHM
    assert PPO_ALGORITHM.options == {}


TOY = """
from suite.worker.algorithms.reinforce_plus_plus import ReinforcePlusPlus

DECLARATION = {
    "name": "toy",
    "summary": "a toy",
    "source": "nobody",
    "values": False,
    "reference": None,
    "group": 3,
    "least_group": 1,
    "options": {"kl_coefficient": 0.5},
}


def build(workload, options):
    return ReinforcePlusPlus(workload, {**options, "clip_low": 0.2, "clip_high": 0.2})
"""


@pytest.fixture
def with_a_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The folder of algorithms has one file more."""
    shutil.copytree(Path(algorithms.__file__).parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr("suite.spec.algorithms._FOLDER", tmp_path)
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    declarations.cache_clear()
    yield
    declarations.cache_clear()
    sys.modules.pop("suite.worker.algorithms.toy", None)


def test_an_algorithm_is_added_by_its_file_alone(with_a_toy: None) -> None:
    workload = tiny_body(workload={"algorithm": "toy:kl-coefficient=0.25", "rollouts": 6})["workload"]
    assert workload["algorithm"] == {"name": "toy", "options": {"kl_coefficient": 0.25}}
    assert workload["group"] == 3
    assert type(build_algorithm(workload)).__name__ == "ReinforcePlusPlus"
    first, *others = declarations()
    assert first == "ppo" and others == sorted(others) and {"grpo", "toy"} <= set(others)
