"""What OpenRLHF's rollout actors run for each sample: forced lengths and the manifest's reward, by the sample's number.

OpenRLHF loads this file by its own option, ``--train.agent_func_path``. Everything that a sample needs to know comes in
its prompt's label, so that the same file serves every run.
"""

from copy import deepcopy
from dataclasses import replace
from typing import Any, Dict

from openrlhf.utils.agent import SingleTurnAgentExecutor

from suite.worker.trainers.openrlhf.counting import Label


class AgentExecutor(SingleTurnAgentExecutor):
    """OpenRLHF's own executor of one turn, with the sampling parameters and the reward of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: Dict[str, int] = {}

    async def execute(self, prompt: str, label: str, sampling_params: Any, *arguments: Any, **options: Any) -> Any:
        """As the parent's; the samples of a prompt are begun in their order, all in one engine."""
        known = Label.read(label)
        row = self._begun.get(label, 0)
        self._begun[label] = row + 1
        forced = deepcopy(sampling_params)
        forced.min_tokens = forced.max_tokens = known.new_tokens[row]
        forced.ignore_eos = True
        output = await super().execute(prompt, label, forced, *arguments, **options)
        output["reward"] = output["scores"] = self._score(known, row, output)
        output["label"] = replace(known, first=known.first + row).write()
        return output

    @staticmethod
    def _score(known: Label, row: int, output: Dict[str, Any]) -> float:
        if known.scores is not None:
            return known.scores[row]
        first, end = output["action_ranges"][0]
        return sum(token < known.threshold for token in output["observation_tokens"][first:end]) / (end - first)
