"""SkyRL's GRPO, timed by its own log."""

import json
import os
import sys
from importlib.util import find_spec
from typing import Any, Dict, List

from suite.worker.rank import ConfigError
from suite.worker.trainers.logged.counts import Told, value, whole_number
from suite.worker.trainers.logged.inputs import prompts
from suite.worker.trainers.logged.reading import LoggedStep
from suite.worker.trainers.logged.trainer import LoggedTrainer
from suite.worker.trainers.logged.work import check_work, common_differences
from suite.worker.trainers.skyrl.callback import COUNTED
from suite.worker.trainers.skyrl.configuration import ENVIRONMENT, configuration
from suite.worker.trainers.skyrl.timers import TIMERS

_STATISTICS = {"loss": "policy/final_loss", "gradient_norm": "policy/grad_norm", "reward": "reward/avg_raw_reward"}
#: A folder that says Qwen gets Qwen's tokenizer, which takes numbers apart.
FAMILIES = ("llama",)


class SkyRlTrainer(LoggedTrainer):
    """0.4.0, colocated and synchronous, on FSDP2 and vLLM."""

    name = "skyrl"
    known_versions = ("0.4.0",)
    timers = TIMERS
    logged = _STATISTICS

    def check(self) -> None:
        check_work(self.manifest, self.name, FAMILIES)
        if find_spec("skyrl") is None:
            raise ConfigError("there is no skyrl here: this backend runs in SkyRL's image (docs/trainers/skyrl.md)")

    def write(self, folder: str) -> None:
        """Overrides as JSON; prompts as messages of numbers, which the tokenizer makes one token each."""
        from datasets import Dataset

        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(configuration(self.manifest, folder), file, indent=1)
        rows = [as_row(row) for row in prompts(self.manifest)]
        Dataset.from_list(rows).to_parquet(os.path.join(folder, "prompts.parquet"))

    def command(self, folder: str) -> List[str]:
        return [sys.executable, "-m", "suite.worker.trainers.skyrl.entry", os.path.join(folder, "config.json")]

    def told_counts(self, step: LoggedStep) -> Told:
        return told_counts(step)

    def differences(self) -> List[str]:
        return list(differences(self.manifest))


def as_row(prompt: Dict[str, Any]) -> Dict[str, Any]:
    """A row of SkyRL's data set: a conversation of one message, its environment, and what that needs to know."""
    text = " ".join(map(str, prompt["tokens"]))
    return {
        "prompt": [{"role": "user", "content": text}],
        "env_class": ENVIRONMENT,
        "iteration": prompt["iteration"],
        "number": prompt["number"],
    }


def told_counts(step: LoggedStep) -> Told:
    """As SkyRL's callback counted them in the tensors of the training batch."""
    return {name: whole_number(value(step, "suite/" + name)) for name in COUNTED}


def differences(manifest: Dict[str, Any]) -> List[str]:
    """One sentence each."""
    kl_coefficient = manifest["workload"]["algorithm"]["options"]["kl_coefficient"]
    one = ["log-probs of the policy and of the reference are one timer, so both are in the phase score"]
    return [
        *common_differences(manifest),
        *(one if kl_coefficient > 0 else ()),
        "prompts come in an order that SkyRL's data loader shuffles, so an iteration has other prompts of the run",
        "prompts are text that is tokenised again, and responses are decoded for the environment",
        "log-probs of the policy and of the reference come from workers of their own, each with its own copy on the "
        "device and off it",
        "advantages are divided by the deviation of a prompt's scores plus 1e-6, not 1e-4",
        "the policy loss is SkyRL's, with its own reduction over samples and micro batches",
    ]
