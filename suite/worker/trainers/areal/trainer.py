"""AReaL's GRPO, timed by its own log."""

import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Dict, List

from suite.worker.rank import ConfigError
from suite.worker.trainers.areal.configuration import configuration
from suite.worker.trainers.areal.timers import TIMERS
from suite.worker.trainers.logged.counts import Told, product, value, whole_number
from suite.worker.trainers.logged.reading import LoggedStep
from suite.worker.trainers.logged.trainer import LoggedTrainer
from suite.worker.trainers.logged.work import check_work, common_differences

_COUNT = "__count"
_STATISTICS = {
    "loss": "ppo_actor/update/actor_loss/avg",
    "gradient_norm": "ppo_actor/update/grad_norm",
    "reward": "ppo_actor/task_reward/avg",
}


class ArealTrainer(LoggedTrainer):
    """1.0.4, colocated and synchronous, one controller, on FSDP2 and vLLM."""

    name = "areal"
    known_versions = ("1.0.4",)
    timers = TIMERS
    logged = _STATISTICS

    def check(self) -> None:
        check_work(self.manifest, self.name)
        if find_spec("areal") is None:
            raise ConfigError("there is no areal here: this backend runs in AReaL's image (docs/trainers/areal.md)")

    def write(self, folder: str) -> None:
        """The experiment as JSON, which is YAML too; its program makes the prompts itself."""
        with open(os.path.join(folder, "config.yaml"), "w", encoding="utf-8") as file:
            json.dump(configuration(self.manifest, folder), file, indent=1)

    def command(self, folder: str) -> List[str]:
        config = os.path.join(folder, "config.yaml")
        return [sys.executable, "-m", "suite.worker.trainers.areal.entry", "--config", config]

    def prepared(self, step: LoggedStep) -> LoggedStep:
        return summed(step)

    def told_counts(self, step: LoggedStep) -> Told:
        return told_counts(step, self.world.world_size)

    def differences(self) -> List[str]:
        return list(differences(self.manifest))


def summed(step: LoggedStep) -> LoggedStep:
    """Of timers that ran more than once AReaL logs the mean, and how often: here they become sums."""
    values = dict(step.values)
    for name, seconds in step.values.items():
        times = step.values.get(name + _COUNT)
        if name.startswith("timeperf/") and seconds is not None and times is not None:
            values[name] = seconds * times
    return replace(step, values=values)


def told_counts(step: LoggedStep, ranks: int) -> Told:
    """Sequences and response tokens are sums over the actor's ranks, prompts a mean over sequences; each rank counts
    its optimizer steps, and their sum over ``ranks`` is logged."""
    samples = whole_number(value(step, "ppo_actor/n_seqs"))
    steps = whole_number(value(step, "ppo_actor/update/grad_norm" + _COUNT))
    return {
        "samples": samples,
        "prompt_tokens": product(value(step, "ppo_actor/prompt_len/avg"), samples),
        "response_tokens": whole_number(value(step, "ppo_actor/n_valid_tokens")),
        "trained_tokens": product(value(step, "ppo_actor/seq_len/avg"), samples),
        "optimizer_steps": None if steps is None or steps % ranks else steps // ranks,
    }


def differences(manifest: Dict[str, Any]) -> List[str]:
    """One sentence each."""
    found = [
        *common_differences(manifest),
        "log-probs are computed for prompt positions too, in scoring and in training",
        "samples of a micro batch are packed into one row; a micro batch is bounded by its tokens, not its samples",
        "scores are normalised within a prompt by their unbiased deviation plus 1e-5, not 1e-4, and clipped at 20",
        "weights go to the engine of generation by way of files",
        "actor, reference and vLLM leave the device in turn, which is in no phase",
    ]
    options = manifest["workload"]["algorithm"]["options"]
    if options["kl_coefficient"] > 0:
        found.append("the KL penalty is taken off each token's reward, not added to the loss")
    if options["loss"] != "token":
        found.append("the loss is a mean over tokens; AReaL has no mean over samples")
    return found
