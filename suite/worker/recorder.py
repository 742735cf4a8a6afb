"""Clock and probes around an iteration, the same code for every engine; or nothing at all, for comparison."""

import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional

import torch

from suite.worker.events import EventLog, Progress
from suite.worker.manifest import declared
from suite.worker.memory import MemoryProbe, Peaks
from suite.worker.noise import NoiseProbe
from suite.worker.nvml import DeviceSampler
from suite.worker.turns import Turns
from suite.worker.world import World, barrier, synchronise

#: What a rank may time, in the order of an iteration.
NAMES = tuple(phase["name"] for phase in declared("phases")["phases"])


def check_phase(name: str) -> None:
    """Raise ValueError for a phase that is not declared: no reader of its events would know it."""
    if name not in NAMES:
        raise ValueError("phase {!r} is not declared in suite/worker/phases.json ({})".format(name, ", ".join(NAMES)))


class NullRecorder:
    """Records nothing and waits for nobody: an iteration under it is the bare engine loop."""

    def watch(self, *models: torch.nn.Module) -> None:
        """Forward calls of these models show that the work goes on, also within a long phase."""

    def begin(self, iteration: int) -> None:
        """The iteration starts."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The work of one phase."""
        yield

    def note_memory(self) -> None:
        """Device memory is about to be let go of within a phase."""

    def stop(self) -> None:
        """The iteration's work is over."""

    def finish(self, counts: Dict[str, int], stats: Dict[str, Optional[float]], **optional: Any) -> None:
        """What the iteration amounted to, with further fields of its event; outside of the timed iteration."""


class Recorder(NullRecorder):
    """Times phases and iterations between barriers and emits their events.

    The clock is read at phase edges only. A phase begins when the barrier before it was passed; its ``seconds``
    end when this rank's device has finished, its ``wait_seconds`` when every rank has arrived.
    """

    def __init__(
        self,
        world: World,
        log: EventLog,
        memory: MemoryProbe,
        sampler: Optional[DeviceSampler],
        progress: Progress,
        turns: Turns = Turns(),  # noqa: B008 - the one that gives none
    ) -> None:
        self._world, self._log, self._progress, self._turns = world, log, progress, turns
        self._memory, self._sampler = memory, sampler
        self._noise = NoiseProbe(tells_host=world.local_rank == 0)
        self._began = self._seconds = 0.0
        self._around: Dict[str, Any] = {}

    def watch(self, *models: torch.nn.Module) -> None:
        for model in models:
            model.register_forward_hook(lambda *_: self._progress.beat())

    def count_processes(self, cpu_seconds: Callable[[], float]) -> None:
        """Processor time of processes beside this one that do the run's work, which are nobody's noise."""
        self._noise.count_processes(cpu_seconds)

    def meet(self) -> None:
        """Wait until every rank is at this point of the iteration."""
        barrier(self._world)

    def begin(self, iteration: int) -> None:
        if self._turns.is_over:
            synchronise(self._world)
            self._memory.during(self._turns.ask)
            self._log.emit("turn", iteration=iteration)
        self._turns.begin_iteration()
        self._noise.open_window()  # before ranks meet: what it takes on one rank would else be another's wait
        synchronise(self._world)
        self.meet()
        if self._sampler is not None:
            self._sampler.open_window()
        self._progress.iteration = iteration
        self._began = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        check_phase(name)
        self._progress.phase = name
        self._memory.reset()
        began = time.perf_counter()
        yield
        synchronise(self._world)
        done = time.perf_counter()
        self.meet()
        together = time.perf_counter()
        self._emit_phase(name, done - began, together - done, self._memory.peaks())

    def note_memory(self) -> None:
        self._memory.note()

    def stop(self) -> None:
        self._progress.phase = "other"
        synchronise(self._world)
        self.meet()
        self._seconds = time.perf_counter() - self._began
        self._around = {} if self._sampler is None else {"device": self._sampler.close_window()}
        self._around["noise"] = self._noise.close_window()

    def finish(self, counts: Dict[str, int], stats: Dict[str, Optional[float]], **optional: Any) -> None:
        measured = {"iteration": self._progress.iteration, "seconds": self._seconds, "counts": counts, "stats": stats}
        self._log.emit("iteration", **measured, **self._around, **optional)
        self._log.sync()
        self._progress.completed_iterations += 1

    def _emit_phase(self, name: str, seconds: float, wait_seconds: float, peaks: Peaks) -> None:
        here: Dict[str, Any] = {"iteration": self._progress.iteration, "phase": name}
        self._log.emit("phase", seconds=seconds, wait_seconds=wait_seconds, **here)
        self._log.emit("memory", **here, **peaks)
