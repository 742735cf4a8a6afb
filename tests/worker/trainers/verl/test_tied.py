"""A model whose output head is its embedding, sent in buckets: vLLM's own rule, and what keeps to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.worker.trainers.drawn_model import build_model
from suite.worker.trainers.verl import tied
from tests.worker.trainers.runs import tiny_shape
from tests.worker.trainers.verl.manifests import SHAPE


def full(**size: Any) -> dict[str, Any]:
    """A shape as the worker reads it."""
    return tiny_shape(**{"architecture": "llama", **SHAPE, **size}).model_dump(mode="json")


class Engine:
    """Gives weights as verl's engine does: by the names of the model's state, in its order."""

    def __init__(self, model: Any) -> None:
        self.module = model

    def get_per_tensor_param(self, base_sync_done: bool = False) -> tuple[Iterable[tied.Named], dict[str, bool]]:
        return ((name, weight) for name, weight in self.module.state_dict().items()), {"told": base_sync_done}


def worker_of(model: Any) -> Any:
    """As Ray holds it: one process with the policy, the reference and the critic."""
    policy = SimpleNamespace(actor=SimpleNamespace(engine=Engine(model)), ref=SimpleNamespace(engine=Engine(model)))
    return SimpleNamespace(worker_dict={"actor": policy, "critic": SimpleNamespace(engine=Engine(model))})


def buckets(weights: Iterable[tied.Named], size: int) -> Iterator[list[str]]:
    """Names, as verl's sender fills buckets of so many bytes."""
    filled, names = 0, []
    for name, weight in weights:
        if names and filled + weight.nbytes > size:
            yield names
            filled, names = 0, []
        filled += weight.nbytes
        names.append(name)
    yield names


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_weight_but_a_tied_head_is_sent_once_over_several_buckets(architecture: str) -> None:
    model = build_model(full(architecture=architecture))
    state, worker = model.state_dict(), worker_of(model)
    assert torch.equal(state[tied.HEAD], state["model.embed_tokens.weight"]), "what vLLM has already"
    largest = max(weight.nbytes for weight in state.values())
    *_, last = buckets(state.items(), largest)
    assert tied.HEAD in last and "model.embed_tokens.weight" not in last, "what vLLM would refuse"
    assert tied.leave_out_head(worker)
    weights, adapter = worker.worker_dict["actor"].actor.engine.get_per_tensor_param(base_sync_done=True)
    found = list(buckets(weights, largest))
    assert len(found) > 2 and adapter == {"told": True}
    assert [name for names in found for name in names] == [name for name in state if name != tied.HEAD]


def test_a_head_of_its_own_is_sent() -> None:
    worker = worker_of(build_model(full(tied_embeddings=False)))
    engine = worker.worker_dict["actor"].actor.engine
    assert not tied.leave_out_head(worker)
    assert tied.HEAD in dict(engine.get_per_tensor_param()[0])
    assert "get_per_tensor_param" not in vars(engine)
