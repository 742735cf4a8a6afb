"""A trainer in an image of its own: rank 0 starts its program, reads its step log and tells all ranks what it says."""

import json
import os
import shutil
import sys
import tempfile
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import torch.distributed as dist

from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.led import LedTrainer
from suite.worker.trainers.logged.child import Child
from suite.worker.trainers.logged.clock import LeadingToldClock, ToldClock
from suite.worker.trainers.logged.counts import Told, check_told, value
from suite.worker.trainers.logged.inputs import MANIFEST_VARIABLE, write_model
from suite.worker.trainers.logged.reading import LoggedStep, StepReader
from suite.worker.trainers.logged.sink import LOG_VARIABLE
from suite.worker.trainers.logged.timers import Timer, time_step
from suite.worker.trainers.processes import Processes
from suite.worker.world import World

CLOCK = "the trainer's own log"
EXPERIMENTAL = "never run"
_POLL_SECONDS = 0.05
_BEAT_SECONDS = 5.0
#: A program that has logged its last step may take this long to come down by itself.
_DOWN_SECONDS = 120.0
#: Where the package ``suite`` lies, for workers of the trainer that start in another folder.
_ROOT = str(Path(__file__).resolve().parents[4])
#: What a trainer might send home, turned off.
_VARIABLES = {
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


class LoggedTrainer(LedTrainer):
    """Subclasses say what is written, what is started, and what the log's names mean."""

    timed_by = CLOCK
    experimental = EXPERIMENTAL
    #: as the step log calls the trainer, and its versions whose names are known
    name: str
    known_versions: Tuple[str, ...]
    timers: Tuple[Timer, ...]
    #: statistics by the suite's names, as the log calls them
    logged: Dict[str, str]

    def start(self) -> "Program":
        """Rank 0 writes what the program needs, and starts it. Raises ConfigError for more than one node."""
        if self.manifest["layout"]["nodes"] > 1:
            raise ConfigError("{} runs on one node here: its model lies in a folder of that node".format(self.name))
        self.notes += (
            "seconds and counts are those that {} logs; the suite started it and read them".format(self.name),
            "memory is that of the whole iteration: the log does not say when a phase begins",
        )
        self.work_differences = tuple(self.differences())
        return Program(self._start() if self.world.rank == 0 else None, self.world)

    @abstractmethod
    def write(self, folder: str) -> None:
        """On rank 0: configuration and data into ``folder``; the model lies in its folder ``model`` already."""

    @abstractmethod
    def command(self, folder: str) -> List[str]:
        """On rank 0: the program with its arguments."""

    @abstractmethod
    def told_counts(self, step: LoggedStep) -> Told:
        """The counts that a step's log tells; what it does not tell is left out or null."""

    @abstractmethod
    def differences(self) -> List[str]:
        """Where the work differs from the suite's own iteration, one sentence each."""

    def statistics(self, step: LoggedStep) -> Dict[str, Optional[float]]:
        """Of the training, by the suite's names."""
        return {name: value(step, logged) for name, logged in self.logged.items()}

    def prepared(self, step: LoggedStep) -> LoggedStep:
        """The step with its values as timers and counts expect them."""
        return step

    def build(self) -> None:
        """Nothing: the program builds in its own processes."""

    def make_clock(self, *arguments: Any) -> ToldClock:
        clock = LeadingToldClock(*arguments) if self.world.rank == 0 else ToldClock(*arguments)
        clock.refresh = self.cluster.processes.refresh
        if self.world.local_rank == 0:
            clock.count_processes(self.cluster.processes.cpu_seconds)
        return clock

    def lead(self, clock: NullClock, iterations: int) -> None:
        """See ``LedTrainer``. Raises ConfigError for a log that cannot be trusted, RuntimeError where it ends early."""
        assert isinstance(clock, LeadingToldClock), "rank 0 leads"
        program: Any = self.cluster
        child = program.child
        assert child is not None, "rank 0 started it"
        reader = StepReader(os.path.join(self._folder, "steps.jsonl"), self.name, self.known_versions)
        clock.attend(0)
        done, beaten = 0, time.monotonic()
        while done < iterations:
            code = child.exit_code()
            for step in reader.read():
                if done == iterations:
                    raise ConfigError("{} logged a step more than the {} asked for".format(self.name, iterations))
                self._tell_step(clock, step)
                done += 1
                if done < iterations:
                    clock.attend(done)
            if done < iterations and code is not None:
                reader.close()
                raise RuntimeError(
                    "{} ended with code {} after {} of {} steps; it said last: {}".format(
                        self.name, code, done, iterations, child.last_line()
                    )
                )
            if time.monotonic() - beaten > _BEAT_SECONDS and child.has_shown_life():
                clock.beat()
                beaten = time.monotonic()
            time.sleep(_POLL_SECONDS)
        _await_end(child, self.name)
        for _ in reader.read():
            raise ConfigError("{} logged a step more than the {} asked for".format(self.name, iterations))

    def _tell_step(self, clock: LeadingToldClock, step: LoggedStep) -> None:
        step = self.prepared(step)
        timed = time_step(step, self.timers, self.name)
        counts = check_told(self.told_counts(step), self.manifest, step, self.name)
        optional = {"details": timed.details} if timed.details else {}
        clock.tell(timed.seconds, timed.phases, counts, self.statistics(step), **optional)

    def _start(self) -> Child:
        self._folder = folder = tempfile.mkdtemp(prefix="suite-{}-".format(self.name))
        try:
            model = os.path.join(folder, "model")
            os.mkdir(model)
            write_model(model, self.manifest)
            self.write(folder)
            manifest = os.path.join(folder, "manifest.json")
            with open(manifest, "w", encoding="utf-8") as file:
                json.dump(self.manifest, file)
            environment = {**os.environ, **_VARIABLES, MANIFEST_VARIABLE: manifest}
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
            environment[LOG_VARIABLE] = os.path.join(folder, "steps.jsonl")
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                environment.pop(name, None)  # of this run's ranks, and not of the trainer's own
            return Child(self.command(folder), environment, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


class Program:
    """What a rank knows of the program: rank 0 its child, all of its node the processes."""

    def __init__(self, child: Optional[Child], world: World) -> None:
        """Collective."""
        self.child = child
        pid = [None if child is None else child.pid]
        if world.world_size > 1:
            dist.broadcast_object_list(pid, src=0)
        self.processes = Processes(int(pid[0] or 0))

    def close(self) -> None:
        """End the program where this rank started it."""
        if self.child is not None:
            self.child.close()


def _await_end(child: Child, name: str) -> None:
    """Every step was told; a program that then ends badly, or does not end, changes no figure."""
    until = time.monotonic() + _DOWN_SECONDS
    while child.exit_code() is None and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    code = child.exit_code()
    if code != 0:
        print("{} ended with code {} after its last step".format(name, code), file=sys.stderr)
