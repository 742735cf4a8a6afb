"""What the driver reads of an algorithm is what the worker does, and one is added by its file alone."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.spec.algorithms import Algorithm, declarations, find_algorithm
from suite.spec.workload import PPO_ALGORITHM
from suite.worker import algorithms
from suite.worker.algorithms import build_algorithm
from tests.worker.tiny import tiny_body

ROOT = Path(__file__).resolve().parents[3]
OTHERS = [name for name in declarations() if name != "ppo"]


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


def test_an_unknown_algorithm_is_refused_by_the_worker_too() -> None:
    with pytest.raises(ValueError, match="no algorithm 'dpo'"):
        build_algorithm({"algorithm": {"name": "dpo", "options": {}}})


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
def with_a_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of algorithms has one file more."""
    shutil.copytree(ROOT / "suite/worker/algorithms", tmp_path, dirs_exist_ok=True)
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr("suite.spec.algorithms._FOLDER", tmp_path)
    monkeypatch.setattr(algorithms, "_FOLDER", str(tmp_path))
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
    assert list(declarations()) == ["ppo", *sorted([*OTHERS, "toy"])]
