"""Trainers that work in processes of their own: rank 0 leads one, the other ranks follow its clock.

A launcher starts a rank for every device as always. Here a rank computes nothing: it stands for its device in the
bundle, with the same phases and iterations as rank 0 and with the memory of its own device.
"""

from abc import abstractmethod
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import torch.distributed as dist

from suite.worker.nvml import find_gpu
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock, PhaseClock
from suite.worker.trainers.processes import NodeMemory
from suite.worker.trainers.ray_cluster import RayCluster
from suite.worker.world import World

#: the methods of a clock that all ranks call together
_Call = Tuple[str, Tuple[Any, ...], Dict[str, Any]]
_NOTE_CPU = (
    "the trainer's work is done by processes of its own; resident memory is that of all of them on a node, shared "
    "evenly over its ranks"
)
_NOTE_CUDA = (
    "the trainer's work is done by processes of its own; device memory is what the whole device uses, sampled while a "
    "phase runs; what of it is allocated is not known"
)


def led(name: str) -> Callable[..., None]:
    """The method of a leading clock that does what its class's does, and the other ranks at the same barrier."""

    def call(clock: "LeadingClock", *arguments: Any, **options: Any) -> None:
        clock._next = (name, arguments, options)
        getattr(super(LeadingClock, clock), name)(*arguments, **options)

    return call


class LeadingClock(PhaseClock):
    """Rank 0's: the other ranks do what it does, at the same barriers."""

    _next: Optional[_Call] = None
    begin, open, close, stop = map(led, ("begin", "open", "close", "stop"))

    def finish(self, counts: Dict[str, int], stats: Dict[str, Optional[float]], **optional: Any) -> None:
        optional = self.with_details(optional)
        _tell(self._world, ("finish", (counts, stats), optional))
        PhaseClock.finish(self, counts, stats, **optional)

    def meet(self) -> None:
        call, self._next = self._next, None
        if call is not None:
            _tell(self._world, call)
        PhaseClock.meet(self)


class LedTrainer(Trainer):
    """A trainer on Ray. ``world`` is one of gloo, also where the trainer's processes have GPUs."""

    own_processes = True
    #: of rank 0, and of the others
    clocks: Tuple[Type[PhaseClock], Type[PhaseClock]] = (LeadingClock, PhaseClock)

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        """Collective: checks the manifest, starts Ray, and has rank 0 build. Raises ConfigError or ValueError."""
        self.manifest, self.world = manifest, world
        device = manifest["measure"]["device"]
        self.notes = (_NOTE_CPU if device == "cpu" else _NOTE_CUDA,)
        self.check()
        self.waiting_for("Ray's start")
        self.cluster: RayCluster = self.start()
        try:
            if world.rank == 0:
                self.build()
            if world.world_size > 1:
                dist.barrier()  # whatever a rank reads of the trainer's processes, all of them are there
        except BaseException:
            self.cluster.close()
            raise

    def check(self) -> None:
        """Before anything starts, on every rank; imports nothing heavy. Raises ConfigError."""

    def start(self) -> Any:
        """What holds the trainer's processes, on every rank at the same time: Ray, unless a trainer starts its own.

        It has ``processes``, those of this node, and ``close``.
        """
        return RayCluster(self.world, self.manifest["measure"]["device"])

    @abstractmethod
    def build(self) -> None:
        """On rank 0: connect to ``cluster`` and get the trainer ready to run. Sets notes, versions and differences."""

    @abstractmethod
    def lead(self, clock: NullClock, iterations: int) -> None:
        """On rank 0: all iterations, as ``Trainer.run``."""

    def make_clock(self, *arguments: Any) -> PhaseClock:
        clock = self.clocks[self.world.rank > 0](*arguments)
        if self.world.local_rank == 0 and self.cluster.processes is not None:
            clock.count_processes(self.cluster.processes.cpu_seconds)
        return clock

    def make_memory(self) -> NodeMemory:
        world, is_cuda = self.world, self.manifest["measure"]["device"] == "cuda"
        gpu = find_gpu(world.local_rank) if is_cuda else None
        return NodeMemory(self.cluster.processes, world.local_world_size, world.local_rank == 0, gpu)

    def run(self, clock: NullClock, iterations: int) -> None:
        try:
            if self.world.rank == 0:
                self.lead(clock, iterations)
                _tell(self.world, None)
            else:
                _follow(clock)
        finally:
            self.cluster.close()


def _follow(clock: NullClock) -> None:
    """Do what rank 0's clock does until it says that all is over."""
    while True:
        heard: List[Optional[_Call]] = [None]
        dist.broadcast_object_list(heard, src=0)
        if heard[0] is None:
            return
        name, arguments, options = heard[0]
        getattr(clock, name)(*arguments, **options)


def _tell(world: World, call: Optional[_Call]) -> None:
    if world.world_size > 1:
        dist.broadcast_object_list([call], src=0)
