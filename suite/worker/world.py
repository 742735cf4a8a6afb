"""The ranks of a run: who this process is, and the process group they share."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Mapping

import torch
import torch.distributed as dist

#: What torchrun sets for each rank; a launcher that starts ranks itself sets the same.
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


@dataclass(frozen=True)
class World:
    """This process among all: ``rank`` of ``world_size``, ``local_rank`` of ``local_world_size`` on its node."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device


def read_world(device_type: str, environment: Mapping[str, str]) -> World:
    """The world that torchrun's variables describe; with none of them set, one rank alone.

    Raises ValueError when only some of them are set.
    """
    present = [name for name in LAUNCH_VARIABLES if name in environment]
    if not any(name in environment for name in _ONE_RANK):
        environment = _ONE_RANK
    elif len(present) < len(LAUNCH_VARIABLES):
        missing = sorted(set(LAUNCH_VARIABLES) - set(present))
        raise ValueError("the launcher set {} but not {}".format(", ".join(present), ", ".join(missing)))
    local_rank = int(environment["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if device_type == "cuda" else torch.device("cpu")
    return World(
        rank=int(environment["RANK"]),
        world_size=int(environment["WORLD_SIZE"]),
        local_rank=local_rank,
        local_world_size=int(environment["LOCAL_WORLD_SIZE"]),
        device=device,
    )


def join(world: World, timeout_seconds: float) -> None:
    """Initialise torch.distributed: gloo on the CPU, NCCL on CUDA; one rank alone needs no address.

    The variables are completed for a rank started by plain python, because the stacks read them too.
    """
    alone = "MASTER_ADDR" not in os.environ
    if alone:
        os.environ.update(_ONE_RANK, MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    timeout = timedelta(seconds=timeout_seconds)
    store = dist.HashStore() if alone else None
    place = {"store": store, "rank": 0, "world_size": 1} if alone else {"init_method": "env://"}
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
        dist.init_process_group("nccl", timeout=timeout, device_id=world.device, **place)
    else:
        dist.init_process_group("gloo", timeout=timeout, **place)


def barrier(world: World) -> None:
    """Wait for every rank; on CUDA the caller has synchronised the device before."""
    if world.world_size == 1:
        return
    if world.device.type == "cuda":
        dist.barrier(device_ids=[world.local_rank])
    else:
        dist.barrier()


def leave() -> None:
    """Take the process group down when the run ended well; after a failure the process just ends."""
    if dist.is_initialized():
        dist.destroy_process_group()
