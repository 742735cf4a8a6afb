"""NeMo-RL's GRPO, timed by its own log."""

import json
import os
import sys
from importlib.util import find_spec
from typing import Any, Dict, List

from suite.worker.rank import ConfigError
from suite.worker.trainers.logged.counts import Told, product, value, whole_number
from suite.worker.trainers.logged.inputs import prompts
from suite.worker.trainers.logged.reading import LoggedStep
from suite.worker.trainers.logged.trainer import LoggedTrainer
from suite.worker.trainers.logged.work import check_work, common_differences
from suite.worker.trainers.nemo_rl.configuration import configuration
from suite.worker.trainers.nemo_rl.timers import TIMERS

_STATISTICS = {"loss": "train/loss", "gradient_norm": "train/grad_norm", "reward": "train/reward"}


class NemoRlTrainer(LoggedTrainer):
    """v0.7.0, colocated and synchronous, on FSDP2 (its DTensor policy) and vLLM."""

    name = "nemo-rl"
    known_versions = ("0.7.0",)
    timers = TIMERS
    logged = _STATISTICS

    def check(self) -> None:
        check_work(self.manifest, self.name)
        if find_spec("nemo_rl") is None:
            raise ConfigError(
                "there is no nemo_rl here: this backend runs in NeMo-RL's image (docs/trainers/nemo-rl.md)"
            )

    def write(self, folder: str) -> None:
        """Configuration as JSON, which is YAML too; prompts one a line."""
        from suite.worker.trainers.nemo_rl.entry import source_folder

        base = os.path.join(source_folder(), "examples", "configs", "grpo_math_1B.yaml")
        with open(os.path.join(folder, "config.yaml"), "w", encoding="utf-8") as file:
            json.dump(configuration(self.manifest, folder, base), file, indent=1)
        with open(os.path.join(folder, "prompts.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in prompts(self.manifest))

    def command(self, folder: str) -> List[str]:
        return [sys.executable, "-m", "suite.worker.trainers.nemo_rl.entry", os.path.join(folder, "config.yaml")]

    def told_counts(self, step: LoggedStep) -> Told:
        return told_counts(step)

    def differences(self) -> List[str]:
        return list(differences(self.manifest))


def told_counts(step: LoggedStep) -> Told:
    """Samples are turns of one each; tokens are means over them, and a sum of all that is trained on."""
    samples = whole_number(value(step, "train/total_turns"))
    return {
        "samples": samples,
        "prompt_tokens": product(value(step, "train/mean_prompt_length"), samples),
        "response_tokens": product(value(step, "train/mean_gen_tokens_per_sample"), samples),
        "trained_tokens": whole_number(value(step, "train/total_num_tokens")),
    }


def differences(manifest: Dict[str, Any]) -> List[str]:
    """One sentence each."""
    found = common_differences(manifest)
    found += [
        "log-probs are computed for prompt positions too, in scoring and in training",
        "model and optimizer leave the device for generation, and come back for scoring and training",
        "advantages are divided by the deviation of a prompt's scores plus 1e-6, not 1e-4",
        "each step's samples are written to a file behind it, which is in no iteration",
    ]
    if manifest["workload"]["algorithm"]["options"]["kl_coefficient"] > 0:
        found += [
            "log-probs of the policy and of the reference are one timer, so both are in the phase score",
            "the reference's weights are swapped into the policy's workers and out again in each iteration",
        ]
    return found
