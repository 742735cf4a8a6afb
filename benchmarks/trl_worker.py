"""One rank of TRL's trainer whose iterations take turns: alone, with the suite's barriers, with all of its clock.

    python -m benchmarks.trl_worker MANIFEST.json SCRATCH_FOLDER

For a turn *alone* every hook is taken out and the trainer's class is TRL's own, but for the fetching of batches, where
turns change hands. All turns are of one process and one model, so neither differs between them. The manifest's
iterations are timed from outside, from one's beginning to the next one's, with the writing of their events; its warm-up
and the last are not. Rank 0 prints the seconds as JSON. Runs in an interpreter with TRL (``make trl``).
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.loop_worker import WatchedTurns, meet
from benchmarks.rank_end import end_with
from benchmarks.trlx_worker import ABSENT, ALONE, clocks_of
from suite.worker.events import EventLog
from suite.worker.rank import read_rank
from suite.worker.session import own_build
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.trl import trainer as trl_trainer
from suite.worker.trainers.trl.hooks import TimedTrainer
from suite.worker.world import World, join


class Turns:
    """Gives each iteration to the next of several clocks or to TRL alone, and times it from outside."""

    def __init__(self, world: World, clocks: dict[str, NullClock], warmup: int) -> None:
        self._world, self._clocks, self._warmup = world, clocks, warmup
        self._name, self._began, self._begun = ALONE, 0.0, 0
        self._classes: dict[bool, type] = {}
        self._hooks: dict[bool, list[tuple[Any, str, Any]]] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in (*clocks, ALONE)}

    def prepare(self, trainer: Any) -> None:
        """Everything that the suite sets on objects of TRL, and what is there before."""
        wrapped = getattr(trainer.accelerator, "deepspeed_engine_wrapped", None)
        steps = (trainer.accelerator, "backward"), (getattr(wrapped, "engine", trainer.optimizer), "step")
        own = "_get_per_token_logps_and_entropies", "_calculate_rewards", "compute_loss", "_clip_grad_norm", "log"
        places = [*steps, *((trainer, name) for name in own)]
        for is_timed in (False, True):
            if is_timed:
                trainer.time_calls()
            self._hooks[is_timed] = [(owner, name, vars(owner).get(name, ABSENT)) for owner, name in places]
        self._watched = WatchedTurns(self._clocks["clock"], (trainer.model, trainer.ref_model))
        self._classes = {True: type(trainer), False: alone(type(trainer).__mro__[2])}

    def change(self, trainer: Any) -> None:
        """Between two iterations. The order turns round each time."""
        meet(self._world)
        if self._begun > self._warmup:
            self.seconds[self._name].append(time.perf_counter() - self._began)
        turn, identity = divmod(max(0, self._begun - self._warmup), len(self.seconds))
        self._name = list(self.seconds)[:: 1 if turn % 2 == 0 else -1][identity]
        is_timed = self._name != ALONE
        trainer.__class__ = self._classes[is_timed]
        for owner, name, value in self._hooks[is_timed]:
            if value is not ABSENT:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)
        self._watched.set(self._name == "clock")
        trainer.iteration_state.clock = self._clocks.get(self._name, trainer.iteration_state.clock)
        trainer.iteration_state.iteration = self._begun - is_timed  # the subclass counts on
        self._begun += 1
        meet(self._world)
        self._began = time.perf_counter()


def turning(turns: Turns, base: type) -> type:
    """The suite's subclass of a trainer, which can be taken out of it and put in again."""

    class TurnTrainer(TimedTrainer, base):
        _name = base._name
        fetch = TimedTrainer.get_batch_samples

        def get_batch_samples(self, *arguments: Any, **options: Any) -> Any:
            if not self._is_timed:
                self._is_timed = True
                turns.prepare(self)
                self._on_start()
            if self._step % self._passes == 0:
                turns.change(self)
            return type(self).fetch(self, *arguments, **options)

    base.suites_batches = TurnTrainer.get_batch_samples
    return TurnTrainer


def alone(base: type) -> type:
    """TRL's trainer, which changes turns."""

    class AloneTrainer(base):
        get_batch_samples = base.suites_batches
        fetch = base.get_batch_samples

    return AloneTrainer


def main() -> EventLog:
    manifest_path, folder = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    measure, identity = manifest["measure"], read_rank(os.environ)
    torch.set_num_threads(measure["threads_per_rank"])
    build = own_build(manifest)
    build.load(manifest)
    world = join(identity, measure["device"], 600)
    log, clocks = clocks_of(world, folder)
    turns = Turns(world, clocks, measure["warmup"])
    trl_trainer._timed = lambda base: turning(turns, base)
    build(manifest, world).run(NullClock(), measure["warmup"] + measure["iterations"])
    if world.rank == 0:
        print(f"RESULT {json.dumps(turns.seconds)}", flush=True)
    return log


if __name__ == "__main__":
    end_with(main)
