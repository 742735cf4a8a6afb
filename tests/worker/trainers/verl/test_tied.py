"""A tied output head is not sent to vLLM, which has it as its embedding; every other weight is, in its order."""

from types import SimpleNamespace
from typing import Any

import pytest

from suite.worker.trainers.drawn_model import build_model
from suite.worker.trainers.verl import tied
from tests.worker.trainers.runs import tiny_shape
from tests.worker.trainers.verl.manifests import SHAPE


class Engine:
    """Gives weights as verl's engine does: by the names of the model's state, in its order."""

    def __init__(self, **size: Any) -> None:
        self.module = build_model(tiny_shape(**{"architecture": "llama", **SHAPE, **size}).model_dump(mode="json"))

    def get_per_tensor_param(self, told: bool = False) -> Any:
        return iter(self.module.state_dict().items()), {"told": told}


@pytest.mark.parametrize("size", [{}, {"architecture": "qwen3"}, {"tied_embeddings": False}])
def test_every_weight_but_a_tied_head_is_sent(size: dict[str, Any]) -> None:
    engine = Engine(**size)
    role = SimpleNamespace(actor=SimpleNamespace(engine=engine))
    worker, is_tied = SimpleNamespace(worker_dict={"actor": role}), size.get("tied_embeddings", True)
    assert tied.leave_out_head(worker) is is_tied
    weights, adapter = engine.get_per_tensor_param(told=True)
    assert adapter == {"told": True}
    wanted = [name for name in engine.module.state_dict() if name != tied.HEAD or not is_tied]
    assert [name for name, _ in weights] == wanted
