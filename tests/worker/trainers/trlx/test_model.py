"""What is built for trlx instead of a hub's model."""

from __future__ import annotations

from typing import Any

import pytest

from suite.worker.rank import ConfigError
from suite.worker.trainers.trlx.accelerate import model as trlx_model
from tests.worker.trainers.runs import tiny_shape

GROUPED = tiny_shape("llama", name="grouped", tied_embeddings=False).model_dump(mode="json")


class ConfigBefore431:
    """Takes whatever it is given, as Hugging Face's do, and has no field for key-value heads."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_grouped_queries_are_built_or_refused_and_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trlx_model.build_config(GROUPED).num_key_value_heads == 2
    monkeypatch.setattr(trlx_model, "LlamaConfig", ConfigBefore431)
    with pytest.raises(ConfigError, match=r"no grouped queries, which grouped has \(4 heads, 2 key-value\); install 4"):
        trlx_model.build_config(GROUPED)
    assert trlx_model.build_config({**GROUPED, "kv_heads": 4}).num_attention_heads == 4
