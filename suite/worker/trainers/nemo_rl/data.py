"""The manifest's prompts and rewards by NeMo-RL's own doors: a data set, a processor, an environment as a Ray actor.

Imported in NeMo-RL's processes alone.
"""

import json
from typing import Any, Dict, List, Optional

import ray
import torch
from nemo_rl.data.datasets.raw_dataset import RawDataset
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from suite.worker.trainers.nemo_rl.configuration import Rewards


class NumberedPrompts(RawDataset):
    """Rows as ``prompts`` gives them, in the manifest's order."""

    def __init__(self, data_path: str, **_: Any) -> None:
        from datasets import Dataset

        with open(data_path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.task_name = "suite"
        self.dataset = Dataset.from_list([{**row, "task_name": self.task_name} for row in rows])
        self.val_dataset = None


def as_datum(row: Dict[str, Any], task: Any, tokenizer: Any, longest: Optional[int], index: int) -> Dict[str, Any]:
    """A prompt as it is trained on: its tokens as they are, in one message of the user."""
    tokens = torch.tensor(row["tokens"])
    return {
        "message_log": [{"role": "user", "content": " ".join(map(str, row["tokens"])), "token_ids": tokens}],
        "length": len(tokens),
        "extra_env_info": {"number": row["number"], "scores": row["scores"]},
        "loss_multiplier": 1.0,
        "idx": index,
        "task_name": row["task_name"],
    }


@ray.remote
class NumberedEnvironment(EnvironmentInterface):
    """Ends every sample after its response, with the manifest's score of it."""

    def __init__(self, config: Dict[str, Any]) -> None:
        self._rewards = Rewards()

    def step(self, message_log_batch: List[Any], metadata: List[Dict[str, Any]]) -> Any:
        """One reward a sample, [b] fp32, and an observation without a token."""
        scores = [self._rewards.next(each) for each in metadata]
        nothing: List[Any] = [None] * len(scores)
        return EnvironmentReturn(
            observations=[{"role": "environment", "content": ""} for _ in scores],
            metadata=nothing,
            next_stop_strings=nothing,
            rewards=torch.tensor(scores),
            terminateds=torch.ones(len(scores)),
            answers=None,
        )

    def shutdown(self) -> None:
        """Nothing to end."""

    def global_post_process_and_metrics(self, batch: Any) -> Any:
        return batch, {}
