"""What is built for trlx instead of a hub's model."""

from typing import Any

import pytest

from suite.theory.parameters import parameter_count
from suite.worker.rank import ConfigError
from suite.worker.trainers.trlx.accelerate import model as trlx_model
from tests.worker.trainers.runs import tiny_shape


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama"])
def test_a_model_has_the_shapes_parameters(family: str) -> None:
    shape = tiny_shape(family)
    model = trlx_model.build_model(shape.model_dump(mode="json"))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(shape).total
    assert model.config.architectures == [type(model).__name__] and not model.training


class ConfigBefore431:
    """Takes whatever it is given, as Hugging Face's do, and has no field for key-value heads."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_grouped_queries_are_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trlx_model.AutoConfig, "for_model", lambda _, **fields: ConfigBefore431(**fields))
    grouped = tiny_shape("llama").model_dump(mode="json")
    with pytest.raises(ConfigError, match=r"no grouped queries, which tiny-llama has; install 4"):
        trlx_model.build_config(grouped)
    assert trlx_model.build_config({**grouped, "kv_heads": 4}).num_attention_heads == 4
