"""Two sides of one run: ranks that train and ranks that generate, each a ``torch.distributed`` world of its own.

A stack on either side knows its own side alone: its default process group, ``RANK`` and ``WORLD_SIZE`` are the side's.
The sides meet in the store that the launcher's address names, and in a ``Link``.
"""

import os
from datetime import timedelta
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from suite.worker.rank import RankIdentity
from suite.worker.split.link import Link
from suite.worker.world import World, join

TRAINING, GENERATION = "training", "generation"


class Side(NamedTuple):
    """This rank's side: ``identity`` within it, and how many ranks each side has."""

    name: str
    identity: RankIdentity
    training_ranks: int
    generation_ranks: int

    @property
    def generates(self) -> bool:
        return self.name == GENERATION


def find_side(layout: Dict[str, Any], identity: RankIdentity) -> Optional[Side]:
    """The side of a rank; None where all ranks do both. The last ranks generate."""
    if layout.get("placement", "colocated") != "split":
        return None
    generation = layout["generation_ranks"]
    training = identity.world_size - generation
    first, ranks, name = (training, generation, GENERATION) if identity.rank >= training else (0, training, TRAINING)
    own = RankIdentity(identity.rank - first, ranks, identity.local_rank, ranks)
    return Side(name, own, training, generation)


def join_side(side: Side, identity: RankIdentity, device_type: str, timeout_seconds: float) -> Tuple[World, Link]:
    """This rank in its side's world, and the link to the other. Collective over all ranks of both."""
    timeout = timedelta(seconds=timeout_seconds)
    store, _, _ = next(rendezvous("env://", identity.rank, identity.world_size, timeout=timeout))
    os.environ.update(RANK=str(side.identity.rank), WORLD_SIZE=str(side.identity.world_size))
    own = dist.PrefixStore(side.name, store)
    world = join(side.identity, device_type, timeout_seconds, store=own)
    # In the group that tensors cross by the first training rank is 0, generation ranks follow, others are not in.
    place = side.identity.rank + int(side.generates)
    is_in = side.generates or place == 0
    group = _group(dist.PrefixStore("link", store), place, side.generation_ranks + 1, world, timeout) if is_in else None
    words = dist.PrefixStore("words", store)
    other = TRAINING if side.generates else GENERATION
    return world, Link(words, group, side.generation_ranks, (side.name, other), timeout_seconds)


def _group(store: Any, place: int, size: int, world: World, timeout: timedelta) -> Any:
    """A process group beside the default one, which torch lets nobody make over ranks of two worlds."""
    if world.device.type != "cuda":
        return dist.ProcessGroupGloo(store, place, size, timeout)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, place, size, options)
