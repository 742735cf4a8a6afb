"""NeMo-RL's GRPO, timed by its own log: rank 0 starts its program, reads its step log and tells all ranks of it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional

import torch

from suite.worker.rank import LAUNCH_VARIABLES
from suite.worker.recorder import Recorder
from suite.worker.trainers.clock import NullClock, PhaseClock
from suite.worker.trainers.led import LeadingClock, LedTrainer, led
from suite.worker.trainers.nemo_rl.configuration import CHAT_TEMPLATE, configuration, prompts
from suite.worker.trainers.nemo_rl.entry import LOG_VARIABLE, source_folder
from suite.worker.trainers.nemo_rl.logged import Step, check_counts, read_steps, time_step
from suite.worker.trainers.processes import Processes
from suite.worker.trainers.ray_cluster import gathered
from suite.worker.trainers.scratch import ROOT, Guarded

_STATISTICS = {"loss": "train/loss", "gradient_norm": "train/grad_norm", "reward": "train/reward"}
#: of events whose seconds and counts are from the trainer's own log
SOURCE = "trainer"
_LAST_BYTES = 400
_POLL_SECONDS = 0.05
_BEAT_SECONDS = 5.0


class ToldClock(PhaseClock):
    """The ranks of one run do each of these together. No phase is opened or closed: the log tells of whole iterations,
    and so does the memory that was sampled meanwhile."""

    def begin(self, iteration: int) -> None:
        """From here on the trainer is at work on this iteration, until ``tell``."""
        PhaseClock.begin(self, iteration)
        self._memory.reset()

    def beat(self) -> None:
        self.meet()
        PhaseClock.beat(self)

    def tell(self, seconds: float, phases: Dict[str, float], counts: Any, stats: Any, **optional: Any) -> None:
        """The iteration is over. Null counts are what the log does not tell."""
        Recorder.stop(self)
        self._seconds = seconds
        here: Dict[str, Any] = {"iteration": self._progress.iteration}
        for name, taken in phases.items():
            self._log.emit("phase", phase=name, seconds=taken, wait_seconds=0.0, source=SOURCE, **here)
        self._memory.refresh()
        self._log.emit("memory", phase="other", **here, **self._memory.peaks())
        Recorder.finish(self, counts, stats, source=SOURCE, **optional)


class LeadingToldClock(LeadingClock, ToldClock):
    """Rank 0's: what it does, all ranks do."""

    beat, tell = map(led, ("beat", "tell"))


class NemoRlTrainer(LedTrainer):
    """v0.7.0 in its own image, colocated and synchronous, on FSDP2 (its DTensor policy) and vLLM; on one node."""

    timed_by = "the trainer's own log"
    experimental = "never run"
    clocks = (LeadingToldClock, ToldClock)

    def start(self) -> Any:
        self.notes += (
            "seconds and counts are those that nemo-rl logs; the suite started it and read them",
            "memory is that of the whole iteration: the log does not say when a phase begins",
        )
        self.work_differences = tuple(differences(self.manifest))
        program: Any = SimpleNamespace(pid=None, close=lambda: None) if self.world.rank else self._start()
        program.processes = Processes(gathered(program.pid, self.world)[0])
        return program

    def command(self, folder: str) -> List[str]:
        """On rank 0: the program with its arguments; its configuration, as JSON, which is YAML too, and prompts."""
        base = os.path.join(source_folder(), "examples", "configs", "grpo_math_1B.yaml")
        path = os.path.join(folder, "config.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(configuration(self.manifest, folder, base), file, indent=1)
        with open(os.path.join(folder, "prompts.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in prompts(self.manifest))
        return [sys.executable, "-m", "suite.worker.trainers.nemo_rl.entry", path]

    def build(self) -> None:
        """Nothing: the program builds in its own processes."""

    def lead(self, clock: NullClock, iterations: int) -> None:
        """See ``LedTrainer``. Raises ConfigError for a log that cannot be trusted, RuntimeError where it ends early."""
        assert isinstance(clock, LeadingToldClock), "rank 0 leads"
        steps = read_steps(os.path.join(self._folder, "steps.jsonl"))
        for done in range(iterations):
            clock.begin(done)
            step = self._next(steps, clock, "after {} of {} steps".format(done, iterations))
            (seconds, phases, details), counts = time_step(step), check_counts(step, self.manifest)
            stats = {name: step["values"].get(theirs) for name, theirs in _STATISTICS.items()}
            clock.tell(seconds, phases, counts, stats, details=details)

    def _next(self, steps: Iterator[Optional[Step]], clock: LeadingToldClock, when: str) -> Step:
        """Wait for it, as long as the program is there; what that prints meanwhile is a sign of life."""
        beaten, alive = time.monotonic(), False
        guardian: subprocess.Popen = self.cluster.process
        while True:
            # Asked before the log is read, so that nothing of it is missed. The guardian says when the program has
            # ended well, and ends itself where it has not.
            self._ended_well = self._ended_well or bool(guardian.stdout.read())
            code = 0 if self._ended_well else guardian.poll()
            step = next(steps)
            if step is not None:
                return step
            alive = self._copy_output() or alive
            if code is not None:
                last = self._last.decode("utf-8", "replace").rstrip().rpartition("\n")[2].strip()
                raise RuntimeError("nemo-rl ended with code {} {}; it said last: {}".format(code, when, last))
            if alive and time.monotonic() - beaten > _BEAT_SECONDS:
                clock.beat()
                beaten, alive = time.monotonic(), False
            time.sleep(_POLL_SECONDS)

    def _copy_output(self) -> bool:
        """Put what it has printed meanwhile on this rank's standard error; whether that was anything."""
        data = self._output.read()
        self._last = (self._last + data)[-_LAST_BYTES:]
        sys.stderr.buffer.write(data)
        sys.stderr.flush()
        return bool(data)

    def _start(self) -> Guarded:
        """The program with all the processes that it starts, which end with the rank, as its folder does."""
        from suite.worker.trainers.drawn_model import write_model

        self._folder = folder = tempfile.mkdtemp(prefix="nemo-rl-")
        size, seed = self.manifest["size"], self.manifest["measure"]["seed"]
        write_model(os.path.join(folder, "model"), size, seed, torch.bfloat16, chat_template=CHAT_TEMPLATE)
        # without what is of this run's ranks, and not of the trainer's own
        environment = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
        environment[LOG_VARIABLE] = os.path.join(folder, "steps.jsonl")
        environment["TOKENIZERS_PARALLELISM"] = "false"
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
        path = os.path.join(folder, "output")
        with open(path, "wb") as output:
            program = Guarded(folder, self.command(folder), env=environment, stdout=subprocess.PIPE, stderr=output)
        os.set_blocking(program.process.stdout.fileno(), False)
        self._output = open(path, "rb")  # noqa: SIM115 - open as long as the run
        self._last, self._ended_well = b"", False
        return program


def differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where its work differs from the suite's own iteration, one sentence each."""
    workload = manifest["workload"]
    yield "weights are drawn in bfloat16 and read from files; the trainer keeps fp32 copies of its own"
    yield "ids of the 3 special tokens stand in no prompt, as other numbers take their place"
    yield "samples are scored within generation; the phase reward holds means and advantages alone"
    yield "which sample of a prompt has which of its scores may be the order in which they are complete"
    yield "log-probs are computed for prompt positions too, in scoring and in training"
    yield "model and optimizer leave the device for generation, and come back for scoring and training"
    yield "advantages are divided by the deviation of a prompt's scores plus 1e-6, not 1e-4"
    yield "each step's samples are written to a file after it, which is in no iteration"
    if workload["optimizer_steps"] > 1:
        yield "samples go into optimizer steps in the trainer's own order"
    if workload["algorithm"]["options"]["kl_coefficient"] > 0:
        yield "log-probs of the policy and of the reference are one timer, so both are in the phase score"
        yield "the reference's weights are swapped into the policy's workers and out again in each iteration"
