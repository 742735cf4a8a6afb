"""One rank of trlx's trainer whose iterations take turns: alone, with the suite's barriers, with all of its clock.

    python -m benchmarks.trlx_worker MANIFEST.json SCRATCH_FOLDER

For a turn *alone* every hook is taken out and the trainer's class is trlx's own, but for the beginning of an iteration,
where turns change hands. All turns are of one process and one model, so neither differs between them. The manifest's
iterations are timed from outside, barrier to barrier, with the writing of their events; its warm-up is not. Rank 0
prints the seconds as JSON. Runs in the stack's interpreter, which must hold trlx (docs/backends.md).
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.loop_worker import meet
from benchmarks.rank_end import end_with
from suite.worker.events import EventLog, Progress
from suite.worker.memory import MemoryProbe
from suite.worker.process import resident_bytes
from suite.worker.rank import read_rank
from suite.worker.session import own_build
from suite.worker.trainers.clock import NullClock, PhaseClock
from suite.worker.trainers.trlx.accelerate import trainer as trlx_accelerate
from suite.worker.trainers.trlx.accelerate.hooks import TimedPPO
from suite.worker.world import World, join

ALONE = "alone"
ABSENT = object()


class EdgeClock(NullClock):
    """Barriers and device synchronisation where the clock has them, and nothing else."""

    def __init__(self, world: World) -> None:
        self._world, self._alone = world, False

    def begin(self, iteration: int) -> None:
        meet(self._world)

    def open(self, phase: str, alone: bool = False) -> None:
        self._alone = alone
        self.close()

    def close(self, more: bool = False) -> None:
        if not self._alone:
            meet(self._world)

    def stop(self) -> None:
        meet(self._world)


def clocks_of(world: World, folder: str) -> tuple[EventLog, dict[str, NullClock]]:
    """The suite's clock with its log, and its barriers alone where a rank meets others."""
    log = EventLog(folder, world.rank, world.rank == 0)
    probe = MemoryProbe(world.device, resident_bytes())
    clocks: dict[str, NullClock] = {"clock": PhaseClock(world, log, probe, None, Progress())}
    return log, clocks if world.world_size == 1 else {**clocks, "edges": EdgeClock(world)}


class Turns:
    """Gives each iteration to the next of several clocks or to trlx alone, and times it from outside."""

    def __init__(self, world: World, clocks: dict[str, NullClock], warmup: int) -> None:
        self._world, self._clocks, self._warmup = world, clocks, warmup
        self._name, self._began = ALONE, 0.0
        self.begun = 0
        self.seconds: dict[str, list[float]] = {name: [] for name in (*clocks, ALONE)}

    def change(self, trainer: Any) -> None:
        """Between two iterations. The order turns round each time."""
        if self.begun:
            self.end(trainer)
        turn, identity = divmod(max(0, self.begun - self._warmup), len(self.seconds))
        self._name = list(self.seconds)[:: 1 if turn % 2 == 0 else -1][identity]
        self.begun += 1
        trainer.put_hooks(self._name != ALONE)
        trainer.iteration_state.clock = self._clocks.get(self._name, trainer.iteration_state.clock)
        meet(self._world)
        self._began = time.perf_counter()

    def end(self, trainer: Any) -> None:
        """All optimizer steps of an iteration are done."""
        if self._name != ALONE:
            TimedPPO.end_iteration(trainer)
        meet(self._world)
        if self.begun > self._warmup:
            self.seconds[self._name].append(time.perf_counter() - self._began)


class TurnPPO(TimedPPO):
    """The suite's subclass, which can be taken out of the trainer and put in again."""

    turns: ClassVar[Turns]

    def make_experience(self, *arguments: Any, **options: Any) -> None:
        self.turns.change(self)
        type(self).experience(self, *arguments, **options)

    def experience(self, *arguments: Any, **options: Any) -> None:
        super().make_experience(*arguments, **options)

    def end_iteration(self) -> None:
        """The last one's end, which the suite asks for."""
        self.turns.end(self)
        self.iteration_state.iteration = self.turns.begun - 1

    def put_hooks(self, is_timed: bool) -> None:
        """Everything that the suite sets on objects of trlx, or what was there before."""
        if not hasattr(self, "_own"):
            self._own = self._attributes()
            trlx_class = next(kind for kind in type(self).__mro__ if kind.__name__ == "AcceleratePPOTrainer")
            self._foreign[-1] = (self, "__class__", alone(trlx_class))
        for owner, name, value in self._own if is_timed else self._foreign:
            if value is not ABSENT:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)

    def time_calls(self) -> None:
        self._foreign = self._attributes()
        super().time_calls()

    def _attributes(self) -> list[tuple[Any, str, Any]]:
        from trlx.trainer import accelerate_ppo_trainer as module

        places = [
            (self, "reward_fn"),
            (self, "decode"),
            (self.model, "forward"),
            (self.accelerator.unwrap_model(self.model), "forward_hydra"),
            (getattr(self, "ref_model", self.model), "forward"),
            (self.accelerator, "backward"),
            (self.model, "step"),
            (self.opt, "step"),
            (module, "logprobs_of_labels"),
        ]
        found = [(owner, name, vars(owner).get(name, ABSENT)) for owner, name in places]
        return [*found, (self.tokenizer, "__class__", type(self.tokenizer)), (self, "__class__", type(self))]


def alone(trlx_class: type) -> type:
    """trlx's trainer, which evaluates and saves nothing and changes turns."""

    class AlonePPO(trlx_class):
        turns = TurnPPO.turns
        put_hooks = TurnPPO.put_hooks
        make_experience = TurnPPO.make_experience
        end_iteration = TurnPPO.end_iteration
        experience = trlx_class.make_experience
        evaluate, save_pretrained = TimedPPO.evaluate, TimedPPO.save_pretrained

    return AlonePPO


def main() -> EventLog:
    manifest_path, folder = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    measure, identity = manifest["measure"], read_rank(os.environ)
    trlx_accelerate.TimedPPO = TurnPPO
    build = own_build(manifest)
    world = join(identity, measure["device"], 600)
    log, clocks = clocks_of(world, folder)
    TurnPPO.turns = Turns(world, clocks, measure["warmup"])
    build(manifest, world).run(NullClock(), measure["warmup"] + measure["iterations"])
    if world.rank == 0:
        print(f"RESULT {json.dumps(TurnPPO.turns.seconds)}", flush=True)
    return log


if __name__ == "__main__":
    end_with(main)
