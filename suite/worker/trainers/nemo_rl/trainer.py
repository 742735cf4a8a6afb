"""NeMo-RL's GRPO, timed by its own log: rank 0 starts its program, reads its step log and tells all ranks of it."""

import json
import os
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import torch

from suite.worker.rank import LAUNCH_VARIABLES, ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.led import LedTrainer
from suite.worker.trainers.nemo_rl import logged
from suite.worker.trainers.nemo_rl.configuration import CHAT_TEMPLATE, configuration, prompts
from suite.worker.trainers.nemo_rl.logged import Child, LeadingToldClock, ToldClock
from suite.worker.trainers.nemo_rl.timers import time_step
from suite.worker.trainers.processes import Processes
from suite.worker.trainers.ray_cluster import gathered
from suite.worker.trainers.scratch import ROOT

_STATISTICS = {"loss": "train/loss", "gradient_norm": "train/grad_norm", "reward": "train/reward"}
_POLL_SECONDS = 0.05
_BEAT_SECONDS = 5.0
#: A program that has logged its last step may take this long to come down by itself.
_DOWN_SECONDS = 120.0


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

    def write(self, folder: str) -> None:
        """On rank 0, beside the model: configuration as JSON, which is YAML too; prompts one a line."""
        from suite.worker.trainers.nemo_rl.entry import source_folder

        base = os.path.join(source_folder(), "examples", "configs", "grpo_math_1B.yaml")
        with open(os.path.join(folder, "config.yaml"), "w", encoding="utf-8") as file:
            json.dump(configuration(self.manifest, folder, base), file, indent=1)
        with open(os.path.join(folder, "prompts.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in prompts(self.manifest))

    def command(self, folder: str) -> List[str]:
        """On rank 0: the program with its arguments."""
        return [sys.executable, "-m", "suite.worker.trainers.nemo_rl.entry", os.path.join(folder, "config.yaml")]

    def build(self) -> None:
        """Nothing: the program builds in its own processes."""

    def lead(self, clock: NullClock, iterations: int) -> None:
        """See ``LedTrainer``. Raises ConfigError for a log that cannot be trusted, RuntimeError where it ends early."""
        assert isinstance(clock, LeadingToldClock), "rank 0 leads"
        child: Child = self.cluster
        steps = logged.read_steps(os.path.join(self._folder, "steps.jsonl"))
        beaten, alive = time.monotonic(), False
        for done in range(iterations):
            clock.begin(done)
            while True:
                code = child.exit_code()  # asked before the log is read, so that nothing of it is missed
                step = next(steps)
                if step is not None:
                    break
                if code is not None:
                    raise RuntimeError(
                        "nemo-rl ended with code {} after {} of {} steps; it said last: {}".format(
                            code, done, iterations, child.last_line()
                        )
                    )
                alive = child.copy_output() or alive
                if alive and time.monotonic() - beaten > _BEAT_SECONDS:
                    clock.beat()
                    beaten, alive = time.monotonic(), False
                time.sleep(_POLL_SECONDS)
            timed, counts = time_step(step), logged.check_counts(step, self.manifest)
            stats = {name: step.values.get(theirs) for name, theirs in _STATISTICS.items()}
            clock.tell(timed.seconds, timed.phases, counts, stats, details=timed.details)
        _await_end(child)
        if next(steps) is not None:
            raise ConfigError("nemo-rl logged a step more than the {} asked for".format(iterations))

    def _start(self) -> Child:
        from suite.worker.trainers.drawn_model import write_model

        self._folder = folder = tempfile.mkdtemp(prefix="nemo-rl-")
        size, seed = self.manifest["size"], self.manifest["measure"]["seed"]
        write_model(os.path.join(folder, "model"), size, seed, torch.bfloat16, chat_template=CHAT_TEMPLATE)
        self.write(folder)
        # the environment that scores samples reads it
        with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as file:
            json.dump(self.manifest, file)
        # without what is of this run's ranks, and not of the trainer's own
        environment = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
        environment[logged.LOG_VARIABLE] = os.path.join(folder, "steps.jsonl")
        environment["TOKENIZERS_PARALLELISM"] = "false"
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
        return Child(self.command(folder), environment, folder)


def _await_end(child: Child) -> None:
    """Every step was told; a program that then ends badly, or does not end, changes no figure."""
    until = time.monotonic() + _DOWN_SECONDS
    while child.exit_code() is None and time.monotonic() < until:
        child.copy_output()
        time.sleep(_POLL_SECONDS)
    code = child.exit_code()
    if code != 0:
        print("nemo-rl ended with code {} after its last step".format(code), file=sys.stderr)


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
