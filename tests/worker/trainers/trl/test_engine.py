"""The engine that is there is held against the one that was asked for; nothing of TRL is imported."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from suite.worker.rank import ConfigError
from suite.worker.trainers.trl.engine import check_accelerator, check_engine
from suite.worker.world import World

WORLD = World(0, 1, 0, 1, torch.device("cpu"))


@pytest.fixture(autouse=True, scope="module")
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model_of(layers: int = 2) -> nn.Module:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
    model.config = SimpleNamespace(num_hidden_layers=layers)  # type: ignore[assignment]
    return model


def sharded(blocks: int) -> nn.Module:
    model = model_of()
    for block in list(model)[:blocks]:  # type: ignore[call-overload]
        fully_shard(block)
    return fully_shard(model)  # type: ignore[return-value]


def check(model: nn.Module, engine: str, stage: int = 0) -> None:
    check_engine(SimpleNamespace(model_wrapped=model), {"layout": {"engine": engine, "zero_stage": stage}})


def test_what_was_asked_for_passes() -> None:
    check(DistributedDataParallel(model_of()), "ddp")
    check(sharded(2), "fsdp2", 3)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("ddp", "DDP was asked for, but the model is a Sequential"),
        ("deepspeed", "DeepSpeed was asked for, but the model is a Sequential"),
        ("fsdp2", "FSDP2 was asked for, but the model is a Sequential"),
    ],
)
def test_a_model_without_its_wrapper_is_told(engine: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(model_of(), engine)


def test_ddp_in_the_place_of_fsdp2_is_told() -> None:
    with pytest.raises(ConfigError, match="FSDP2 was asked for, but the model is a DistributedDataParallel"):
        check(DistributedDataParallel(model_of()), "fsdp2", 3)


def test_fsdp2_that_gathers_the_whole_model_at_once_is_told() -> None:
    with pytest.raises(ConfigError, match="gathers 1 of 2 blocks by themselves"):
        check(sharded(1), "fsdp2", 3)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"num_processes": 2}, "Accelerate runs 2 ranks of 1"),
        ({"device": torch.device("meta")}, "Accelerate chose meta, not cpu"),
    ],
)
def test_other_ranks_or_another_device_are_told(found: dict[str, Any], words: str) -> None:
    accelerator = SimpleNamespace(**{"num_processes": 1, "device": WORLD.device, **found})
    trainer = SimpleNamespace(accelerator=accelerator, use_vllm=False)
    with pytest.raises(ConfigError, match=words):
        check_accelerator(trainer, {"layout": {}}, WORLD)
