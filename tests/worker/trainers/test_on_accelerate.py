"""The engine that is there is held against the one that was asked for; no trainer is imported."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from suite.worker.rank import ConfigError
from suite.worker.trainers.on_accelerate import check_engine, check_ranks
from tests.worker.trainers.runs import ALONE

pytestmark = pytest.mark.usefixtures("group_of_one")


def model_of(layers: int = 2) -> nn.Module:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    model.config = SimpleNamespace(num_hidden_layers=layers)  # type: ignore[assignment]
    return model


def sharded(blocks: int) -> nn.Module:
    model = model_of()
    for block in list(model)[:blocks]:  # type: ignore[call-overload]
        fully_shard(block)
    return fully_shard(model)  # type: ignore[return-value]


def stand_in_engine(stage: int) -> Any:
    """Of DeepSpeed's class, and at that stage; nothing of it was built."""
    import deepspeed

    return mock.Mock(spec=deepspeed.DeepSpeedEngine, zero_optimization_stage=lambda: stage)


def ddp() -> nn.Module:
    return DistributedDataParallel(model_of())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "engine", "stage", "words"),
    [
        (ddp, "ddp", 0, None),
        (lambda: sharded(2), "fsdp2", 3, None),
        (lambda: stand_in_engine(2), "deepspeed", 2, None),
        (model_of, "ddp", 0, "ddp was asked for, but the model is a Sequential"),
        (ddp, "fsdp2", 3, "fsdp2 was asked for, but the model is a DistributedDataParallel"),
        (lambda: stand_in_engine(2), "deepspeed", 3, "ZeRO stage 3 was asked for, but DeepSpeed runs stage 2"),
        (lambda: sharded(1), "fsdp2", 3, "gathers 1 of 2 blocks by themselves"),
    ],
)
def test_another_engine_than_was_asked_for_is_told(build: Any, engine: str, stage: int, words: str | None) -> None:
    with nullcontext() if words is None else pytest.raises(ConfigError, match=words):
        check_engine(build(), {"backend": {"name": "trl-grpo"}, "layout": {"engine": engine, "zero_stage": stage}})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"num_processes": 2}, "Accelerate runs 2 ranks of 1"),
        ({"device": torch.device("meta")}, "Accelerate chose meta, not cpu"),
    ],
)
def test_other_ranks_or_another_device_are_told(found: dict[str, Any], words: str) -> None:
    accelerator = SimpleNamespace(**{"num_processes": 1, "device": ALONE.device, **found})
    with pytest.raises(ConfigError, match=words):
        check_ranks(accelerator, ALONE)
