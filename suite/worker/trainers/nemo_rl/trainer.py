"""NeMo-RL's GRPO, timed by its own log: rank 0 starts its program, reads its step log and tells all ranks of it."""

import json
import os
import shutil
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch.distributed as dist

from suite.worker.rank import ConfigError
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.led import LedTrainer
from suite.worker.trainers.nemo_rl.configuration import configuration
from suite.worker.trainers.nemo_rl.inputs import prompts, write_model
from suite.worker.trainers.nemo_rl.logged import (
    LOG_VARIABLE,
    Child,
    LeadingToldClock,
    LoggedStep,
    Told,
    ToldClock,
    check_told,
    read_steps,
    whole_number,
)
from suite.worker.trainers.nemo_rl.timers import time_step
from suite.worker.trainers.processes import Processes
from suite.worker.world import World

_STATISTICS = {"loss": "train/loss", "gradient_norm": "train/grad_norm", "reward": "train/reward"}
_POLL_SECONDS = 0.05
_BEAT_SECONDS = 5.0
#: A program that has logged its last step may take this long to come down by itself.
_DOWN_SECONDS = 120.0
#: Where the package ``suite`` lies, for workers of the trainer that start in another folder.
_ROOT = str(Path(__file__).resolve().parents[4])


class NemoRlTrainer(LedTrainer):
    """v0.7.0 in its own image, colocated and synchronous, on FSDP2 (its DTensor policy) and vLLM; on one node."""

    timed_by = "the trainer's own log"
    experimental = "never run"

    def check(self) -> None:
        if find_spec("nemo_rl") is None:
            raise ConfigError(
                "there is no nemo_rl here: this backend runs in NeMo-RL's image (docs/trainers/nemo-rl.md)"
            )

    def start(self) -> "Program":
        """Rank 0 writes what the program needs, and starts it."""
        self.notes += (
            "seconds and counts are those that nemo-rl logs; the suite started it and read them",
            "memory is that of the whole iteration: the log does not say when a phase begins",
        )
        self.work_differences = tuple(differences(self.manifest))
        return Program(self._start() if self.world.rank == 0 else None, self.world)

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
        child: Child = program.child
        steps = read_steps(os.path.join(self._folder, "steps.jsonl"))
        beaten = time.monotonic()
        for done in range(iterations):
            clock.attend(done)
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
                if time.monotonic() - beaten > _BEAT_SECONDS and child.has_shown_life():
                    clock.beat()
                    beaten = time.monotonic()
                time.sleep(_POLL_SECONDS)
            self._tell_step(clock, step)
        _await_end(child)
        if next(steps) is not None:
            raise ConfigError("nemo-rl logged a step more than the {} asked for".format(iterations))

    def _tell_step(self, clock: LeadingToldClock, step: LoggedStep) -> None:
        timed = time_step(step)
        counts = check_told(told_counts(step), self.manifest, step)
        stats = {name: step.values.get(logged) for name, logged in _STATISTICS.items()}
        optional = {"details": timed.details} if timed.details else {}
        clock.tell(timed.seconds, timed.phases, counts, stats, **optional)

    def _start(self) -> Child:
        self._folder = folder = tempfile.mkdtemp(prefix="suite-nemo-rl-")
        try:
            model = os.path.join(folder, "model")
            os.mkdir(model)
            write_model(model, self.manifest)
            self.write(folder)
            # the environment that scores samples reads it
            with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as file:
                json.dump(self.manifest, file)
            environment = {**os.environ, LOG_VARIABLE: os.path.join(folder, "steps.jsonl")}
            environment["TOKENIZERS_PARALLELISM"] = "false"
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
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


def _await_end(child: Child) -> None:
    """Every step was told; a program that then ends badly, or does not end, changes no figure."""
    until = time.monotonic() + _DOWN_SECONDS
    while child.exit_code() is None and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    code = child.exit_code()
    if code != 0:
        print("nemo-rl ended with code {} after its last step".format(code), file=sys.stderr)


def told_counts(step: LoggedStep) -> Told:
    """Samples are turns of one each; tokens are means over them, and a sum of all that is trained on."""
    samples = whole_number(step.values.get("train/total_turns"))
    return {
        "samples": samples,
        "prompt_tokens": whole_number(step.values.get("train/mean_prompt_length"), samples),
        "response_tokens": whole_number(step.values.get("train/mean_gen_tokens_per_sample"), samples),
        "trained_tokens": whole_number(step.values.get("train/total_num_tokens")),
    }


def differences(manifest: Dict[str, Any]) -> List[str]:
    """Where its work differs from the suite's own iteration, one sentence each."""
    workload = manifest["workload"]
    found = [
        "weights are drawn in bfloat16 and read from files; the trainer keeps fp32 copies of its own",
        "ids of the 3 special tokens stand in no prompt, as other numbers take their place",
        "samples are scored within generation; the phase reward holds means and advantages alone",
        "which sample of a prompt has which of its scores may be the order in which they are complete",
        "log-probs are computed for prompt positions too, in scoring and in training",
        "model and optimizer leave the device for generation, and come back for scoring and training",
        "advantages are divided by the deviation of a prompt's scores plus 1e-6, not 1e-4",
        "each step's samples are written to a file after it, which is in no iteration",
    ]
    if workload["optimizer_steps"] > 1:
        found.append("samples go into optimizer steps in the trainer's own order")
    if workload["algorithm"]["options"]["kl_coefficient"] > 0:
        found += [
            "log-probs of the policy and of the reference are one timer, so both are in the phase score",
            "the reference's weights are swapped into the policy's workers and out again in each iteration",
        ]
    return found
