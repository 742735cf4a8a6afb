"""What OpenRLHF's rollout actors run for each sample: forced lengths and the manifest's reward, by the sample's number.

OpenRLHF loads this file by its own option, ``--train.agent_func_path``. Everything that a sample needs to know comes in
its prompt's label, so that the same file serves every run.
"""

import json
from copy import deepcopy
from typing import Any, Dict

from openrlhf.utils.agent import SingleTurnAgentExecutor


class AgentExecutor(SingleTurnAgentExecutor):
    """OpenRLHF's own executor of one turn, with the sampling parameters and the reward of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: Dict[str, int] = {}

    async def execute(self, prompt: str, label: str, sampling_params: Any, *arguments: Any, **options: Any) -> Any:
        """As the parent's; the samples of a prompt are begun in their order, all in one engine."""
        known = json.loads(label)
        row = self._begun.get(label, 0)
        self._begun[label] = row + 1
        forced = deepcopy(sampling_params)
        forced.min_tokens = forced.max_tokens = known["new_tokens"][row]
        forced.ignore_eos = True
        output = await super().execute(prompt, label, forced, *arguments, **options)
        output["reward"] = output["scores"] = self._score(known, row, output)
        output["label"] = json.dumps({**known, "first": known["first"] + row})
        return output

    @staticmethod
    def _score(known: Dict[str, Any], row: int, output: Dict[str, Any]) -> float:
        if known["scores"] is not None:
            return known["scores"][row]
        first, end = output["action_ranges"][0]
        return sum(token < known["threshold"] for token in output["observation_tokens"][first:end]) / (end - first)
