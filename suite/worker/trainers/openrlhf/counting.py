"""What OpenRLHF generated and trained on, held to the manifest: samples from its rollouts, training from its actors."""

from typing import Any, Dict, List

import torch

from suite.worker.asked import check_counts, draw_prompts, sample_lengths
from suite.worker.rank import ConfigError
from suite.worker.trainers.drawn_model import ordinary
from suite.worker.trainers.openrlhf.label import Label


class Count:
    """Counts of one iteration after the other, over all ranks: the controller sees every sample."""

    def __init__(self, manifest: Dict[str, Any], total_parameters: int, trainable_parameters: int) -> None:
        self._manifest = manifest
        self._workload, self._work = manifest["workload"], manifest["work"]
        self._prompts, self._responses = sample_lengths(self._workload, self._work)
        self._parameters = {"trainable_parameters": trainable_parameters, "total_parameters": total_parameters}
        self.clear()

    def clear(self) -> None:
        """Another iteration begins."""
        self._samples: Dict[str, int] = {}
        self._trained: List[Dict[str, Any]] = []

    def take_samples(self, samples: List[Any], batch: int) -> None:
        """OpenRLHF's experiences of one sample each, before they are scored. Raises ConfigError for other samples than
        those of this ``batch``, each once, with the lengths that were forced on them."""
        numbers = sorted(Label.read(sample.labels[0]).first for sample in samples)
        found = {Label.read(sample.labels[0]).batch for sample in samples}
        if found != {batch} or numbers != list(range(len(self._prompts))):
            raise ConfigError("batch {} is not of its {} samples, each once".format(batch, len(self._prompts)))
        rows = ordinary(draw_prompts(self._manifest, batch), self._manifest["size"]["vocab"])
        counts = {"samples": len(samples), "prompt_tokens": 0, "response_tokens": 0}
        for sample in samples:
            number = Label.read(sample.labels[0]).first
            tokens, response = sample.sequences[0], int(sample.action_mask.sum())
            prompt = tokens.numel() - response
            if (prompt, response) != (self._prompts[number], self._responses[number]):
                raise ConfigError(
                    "sample {} has {} + {} tokens, where {} + {} were forced".format(
                        number, prompt, response, self._prompts[number], self._responses[number]
                    )
                )
            if not torch.equal(tokens[:prompt], rows[number, :prompt]):
                raise ConfigError("sample {} does not begin with its prompt".format(number))
            counts["prompt_tokens"] += prompt
            counts["response_tokens"] += response
        self._samples = counts

    def take_training(self, actors: List[Dict[str, Any]]) -> None:
        """What the ranks of the policy read from their probes."""
        self._trained = actors

    def close(self) -> Dict[str, int]:
        """The iteration's counts. Raises ConfigError unless they are the manifest's."""
        steps = {each["steps"] for each in self._trained}
        if len(steps) != 1:
            raise ConfigError("the policy's ranks made {} optimizer steps".format(sorted(steps)))
        counts = {**self._samples, "optimizer_steps": steps.pop(), **self._parameters}
        counts["trained_tokens"] = sum(each["tokens"] for each in self._trained)
        counts["padded_tokens"] = sum(each["padding"] for each in self._trained)
        check_counts(counts, self._workload, self._work)
        return counts
