"""The engine that is there is held against the one that was asked for; no trainer is imported."""

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
from suite.worker.trainers.accelerate_check import check_engine, check_ranks
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


def stand_in_engine(stage: int) -> Any:
    """Of DeepSpeed's class, and at that stage; nothing of it was built."""
    import deepspeed

    class AtStage(deepspeed.DeepSpeedEngine):  # type: ignore[misc]
        def __del__(self) -> None:
            pass

        def zero_optimization_stage(self) -> int:
            return stage

    return object.__new__(AtStage)


def test_what_was_asked_for_passes() -> None:
    check_engine(DistributedDataParallel(model_of()), "ddp", 0)
    check_engine(sharded(2), "fsdp2", 3)
    check_engine(stand_in_engine(2), "deepspeed", 2)


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
        check_engine(model_of(), engine, 0)


def test_ddp_in_the_place_of_fsdp2_is_told() -> None:
    with pytest.raises(ConfigError, match="FSDP2 was asked for, but the model is a DistributedDataParallel"):
        check_engine(DistributedDataParallel(model_of()), "fsdp2", 3)


def test_another_stage_of_deepspeed_is_told() -> None:
    with pytest.raises(ConfigError, match="ZeRO stage 3 was asked for, but DeepSpeed runs stage 2"):
        check_engine(stand_in_engine(2), "deepspeed", 3)


def test_fsdp2_that_gathers_the_whole_model_at_once_is_told() -> None:
    with pytest.raises(ConfigError, match="gathers 1 of 2 blocks by themselves"):
        check_engine(sharded(1), "fsdp2", 3)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"num_processes": 2}, "Accelerate runs 2 ranks of 1"),
        ({"device": torch.device("meta")}, "Accelerate chose meta, not cpu"),
    ],
)
def test_other_ranks_or_another_device_are_told(found: dict[str, Any], words: str) -> None:
    accelerator = SimpleNamespace(**{"num_processes": 1, "device": WORLD.device, **found})
    with pytest.raises(ConfigError, match=words):
        check_ranks(accelerator, WORLD)
