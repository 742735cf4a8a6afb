"""Two sides of one run: ranks that train and ranks that generate, each a ``torch.distributed`` world of its own.

A stack on either side knows its own side alone: its default process group, ``RANK`` and ``WORLD_SIZE`` are the side's.
The sides meet in the store that the launcher's address names, and in a ``Link``.
"""

import os
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Type

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from suite.worker.events import Progress
from suite.worker.generation.base import Generator
from suite.worker.generation.vllm import VllmGenerator
from suite.worker.rank import RankIdentity
from suite.worker.recorder import Recorder
from suite.worker.split.generation import generation_manifest, produce_rollouts
from suite.worker.split.link import Link
from suite.worker.split.training import train_on_batches
from suite.worker.split.weights import OwnLoop, Publications
from suite.worker.world import join

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


class Split:
    """This rank's side, in its own world and linked to the other."""

    def __init__(self, manifest: Dict[str, Any], identity: RankIdentity, side: Side, progress: Progress) -> None:
        """Collective over both sides; ``identity``: among all of their ranks. Raises ConfigError."""
        self._side, self._manifest = side, generation_manifest(manifest) if side.generates else manifest
        seconds = manifest["limits"]["silence_seconds"]
        timeout = timedelta(seconds=seconds)
        store, _, _ = next(rendezvous("env://", identity.rank, identity.world_size, timeout=timeout))
        os.environ.update(RANK=str(side.identity.rank), WORLD_SIZE=str(side.identity.world_size))
        own = dist.PrefixStore(side.name, store)
        self.world = join(side.identity, manifest["measure"]["device"], seconds, store=own)
        # In the group that tensors cross by the first training rank is 0, generation ranks follow, others are not in.
        place = side.identity.rank + int(side.generates)
        group: Any = None
        if side.generates or place == 0:
            # A group beside the default one, which torch lets nobody make over ranks of two worlds.
            where = (dist.PrefixStore("link", store), place, side.generation_ranks + 1)
            if self.world.device.type == "cuda":
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = timeout
                group = dist.ProcessGroupNCCL(*where, options)
            else:
                group = dist.ProcessGroupGloo(*where, timeout)
        names = (GENERATION, TRAINING) if side.generates else (TRAINING, GENERATION)
        self._link = Link(dist.PrefixStore("words", store), group, side.generation_ranks, names, seconds, progress)
        self._publications = Publications(self._link, self.world.device)
        self.notes = [
            "split placement: ranks 0 to {} train, the other {} generate the next batch meanwhile (one step off policy)"
            "; an iteration lasts from train end to train end".format(side.training_ranks - 1, side.generation_ranks),
            "split placement: the first batch was generated before iteration 0, with weights before any update (the "
            "fill of the pipeline, in no iteration); the last one was generated and not trained on",
            "split placement: all of the policy but the value head is sent in each iteration, what is frozen too",
        ]

    def build(
        self, build: Callable[..., Any], make_generator: Optional[Type[VllmGenerator]]
    ) -> Tuple[Any, Optional[Generator]]:
        """What trains; or what generates: an engine of the same stack, or a generation engine of its own."""
        if make_generator is not None:
            # What a generation engine asks the training engine for: the weights come from the other side.
            weights = partial(self._publications.take, {})
            policy: Any = SimpleNamespace(data_parallel_rank=self.world.rank, weights=weights, notes=(), models=())
            return policy, make_generator(self._manifest, self.world, policy, self._link)
        engine = build(self._manifest, self.world)
        return engine, OwnLoop(engine, self._publications) if self._side.generates else None

    def run(self, subject: Any, generator: Optional[Generator], recorder: Recorder) -> None:
        self._link.watch(*subject.models)
        if generator is None:
            train_on_batches(subject, self._manifest, self._link, recorder)
        else:
            produce_rollouts(generator, self._publications, self._manifest, self.world, self._link, recorder)
