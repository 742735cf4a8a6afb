"""The ranks of a run, the process group they share, and what replicas gather and add up."""

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

from suite.worker.engines.base import Engine
from suite.worker.rank import LAUNCH_VARIABLES, NUMBERS, RankIdentity


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
    alone = not any(name in os.environ for name in NUMBERS)
    if alone:  # stacks read these variables too
        os.environ.update(zip(LAUNCH_VARIABLES, ("0", "1", "0", "1", "127.0.0.1", "0")))
    options: Dict[str, Any] = {"timeout": timedelta(seconds=timeout_seconds)}
    if store is not None:
        options.update(store=store, rank=identity.rank, world_size=identity.world_size)
    elif alone:
        options.update(store=dist.HashStore(), rank=0, world_size=1)
    device = torch.device("cuda", identity.local_rank) if device_type == "cuda" else torch.device("cpu")
    if device_type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device_type == "cuda" else "gloo", **options)
    # DeepSpeed makes groups of its own without a time-out, which would then be torch's half hour.
    dist.new_group = partial(dist.new_group, timeout=options["timeout"])
    return World(*identity, device)


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


class Replicas:
    """Which rank belongs to which replica; collective over all ranks, as is each method."""

    def __init__(self, engine: Engine) -> None:
        self._is_leader = engine.replica_leader
        self._is_main = dist.get_rank() == 0
        mine = torch.tensor([engine.data_parallel_rank, int(engine.replica_leader)], device=engine.device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        leader_of_replica = {int(pair[0]): rank for rank, pair in enumerate(everyone) if bool(pair[1])}
        assert len(leader_of_replica) == engine.data_parallel_size, "each replica has one leader"
        self._ranks, self._leaders = range(len(everyone)), [rank for _, rank in sorted(leader_of_replica.items())]

    def gather(self, tensor: torch.Tensor) -> List[torch.Tensor]:
        """The replica leaders' tensors, in order of replicas, on rank 0, the main one; an empty list on the others.

        Every rank sends, because all ranks of a replica hold the same; the leaders' are kept.
        """
        received = [torch.empty_like(tensor) for _ in self._ranks] if self._is_main else None
        dist.gather(tensor.contiguous(), received, dst=0)
        return [] if received is None else [received[rank] for rank in self._leaders]

    def all_gather(self, tensor: torch.Tensor) -> List[torch.Tensor]:
        """The replica leaders' tensors, in order of replicas, on every rank."""
        received = [torch.empty_like(tensor) for _ in self._ranks]
        dist.all_gather(received, tensor.contiguous())
        return [received[rank] for rank in self._leaders]

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """The main rank's tensor on every rank, shaped as each rank's own."""
        tensor = tensor.contiguous()
        dist.broadcast(tensor, src=0)
        return tensor

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over replicas, each counted once; the same on every rank."""
        total = tensor.clone() if self._is_leader else torch.zeros_like(tensor)
        dist.all_reduce(total)
        return total

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        """The largest over replicas, element by element; the same on every rank."""
        largest = tensor.clone()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return largest
