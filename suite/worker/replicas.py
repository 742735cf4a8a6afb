"""Gathering from the replicas to the main process and back, and sums over replicas."""

from typing import List

import torch
import torch.distributed as dist

from suite.worker.engines.base import Engine

MAIN_RANK = 0


class Replicas:
    """Which rank belongs to which replica; collective over all ranks, as is each method."""

    def __init__(self, engine: Engine) -> None:
        self._device = engine.device
        self._is_leader = engine.replica_leader
        self._is_main = dist.get_rank() == MAIN_RANK
        mine = torch.tensor([engine.data_parallel_rank, int(engine.replica_leader)], device=engine.device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        leader_of_replica = {int(pair[0]): rank for rank, pair in enumerate(everyone) if bool(pair[1])}
        assert len(leader_of_replica) == engine.data_parallel_size, "each replica has one leader"
        self._ranks, self._leaders = range(len(everyone)), [rank for _, rank in sorted(leader_of_replica.items())]

    def gather(self, tensor: torch.Tensor) -> List[torch.Tensor]:
        """The replica leaders' tensors, in order of replicas, on the main rank; an empty list on the others.

        Every rank sends, because all ranks of a replica hold the same; the leaders' are kept.
        """
        received = [torch.empty_like(tensor) for _ in self._ranks] if self._is_main else None
        dist.gather(tensor.contiguous(), received, dst=MAIN_RANK)
        return [] if received is None else [received[rank] for rank in self._leaders]

    def all_gather(self, tensor: torch.Tensor) -> List[torch.Tensor]:
        """The replica leaders' tensors, in order of replicas, on every rank."""
        received = [torch.empty_like(tensor) for _ in self._ranks]
        dist.all_gather(received, tensor.contiguous())
        return [received[rank] for rank in self._leaders]

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """The main rank's tensor on every rank, shaped as each rank's own."""
        tensor = tensor.contiguous()
        dist.broadcast(tensor, src=MAIN_RANK)
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
