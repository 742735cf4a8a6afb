"""The ranks of a run and the process group they share."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Dict, Optional

import torch
import torch.distributed as dist

from suite.worker.rank import RankIdentity, complete_environment


@dataclass(frozen=True)
class World:
    """A rank (as ``RankIdentity`` has it) with the device it computes on, once the process group is there."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device


def join(identity: RankIdentity, device_type: str, timeout_seconds: float, store: Optional[dist.Store] = None) -> World:
    """Initialise torch.distributed, gloo on ``cpu`` and NCCL on ``cuda``; a single rank needs no address.

    NCCL's communicators are made at the first use of each group, as torch does unasked: made with Megatron's 16 groups
    they took 6.5 GiB of an H100. ``store``: where these ranks meet, which then need not be all that the launcher
    started; without one, where the launcher's address says.
    """
    alone = complete_environment()
    options: Dict[str, Any] = {"timeout": timedelta(seconds=timeout_seconds)}
    if store is not None:
        options.update(store=store, rank=identity.rank, world_size=identity.world_size)
    elif alone:
        options.update(store=dist.HashStore(), rank=0, world_size=1)
    if device_type == "cuda":
        device = torch.device("cuda", identity.local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", **options)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", **options)
    # DeepSpeed makes groups of its own without a time-out, which would then be torch's half hour.
    dist.new_group = partial(dist.new_group, timeout=options["timeout"])
    return World(identity.rank, identity.world_size, identity.local_rank, identity.local_world_size, device)


def synchronise(world: World) -> None:
    """Wait until this rank's device has done all it was given."""
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


def barrier(world: World) -> None:
    """Wait for every rank; returns when the device has passed the barrier too."""
    if world.world_size == 1:
        return
    if world.device.type == "cuda":
        dist.barrier(device_ids=[world.local_rank])
        torch.cuda.synchronize(world.device)
    else:
        dist.barrier()


def leave() -> None:
    """Take the process group down after a run that ended well; after a failure the process just ends."""
    dist.destroy_process_group()
