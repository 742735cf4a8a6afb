"""What a trainer really did in an iteration, counted from its tensors and compared with the manifest."""

from typing import Any, Dict

import torch
import torch.distributed as dist

from suite.worker.asked import check_counts, sample_lengths
from suite.worker.rank import ConfigError
from suite.worker.world import World

_SUMMED = ("samples", "prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")


class Tally:
    """Counts of one iteration on this rank. A rank that is not its replica's ``leader`` adds nothing to the sums."""

    def __init__(self, manifest: Dict[str, Any], world: World, leader: bool = True) -> None:
        self._workload, self._work = manifest["workload"], manifest["work"]
        self._prompts, self._responses = sample_lengths(self._workload, self._work)
        self._device, self._leader = world.device, leader
        self.clear()

    def clear(self) -> None:
        self.samples = self.prompt_tokens = self.response_tokens = self.padded_tokens = 0
        self.trained_tokens = self.optimizer_steps = 0

    def add_samples(self, prompts: torch.Tensor, responses: torch.Tensor, padding: int) -> None:
        """Finished samples: prompts [b, P] and responses [b, R], in which ``padding`` is the id of padding.

        Raises ConfigError where a length is not the one that was forced.
        """
        wanted = (self._workload["prompt_tokens"], self._workload["new_tokens"])
        found = (prompts.size(1), responses.size(1))
        if found != wanted or prompts.size(0) != responses.size(0):
            raise ConfigError(
                "{} prompts of {} tokens got {} responses of {}; {} + {} tokens were forced".format(
                    prompts.size(0), found[0], responses.size(0), found[1], *wanted
                )
            )
        padded = [int((tensor == padding).sum()) for tensor in (prompts, responses)]
        self.samples += prompts.size(0)
        self.prompt_tokens += prompts.numel() - padded[0]
        self.response_tokens += responses.numel() - padded[1]
        self.padded_tokens += sum(padded)

    def add_sample(self, number: int, prompt: int, response: int) -> None:
        """A finished sample by its number and lengths. Raises ConfigError where they are not those that were forced."""
        wanted = (self._prompts[number], self._responses[number])
        if (prompt, response) != wanted:
            raise ConfigError(
                "sample {} has {} + {} tokens, where {} + {} were forced".format(number, prompt, response, *wanted)
            )
        self.samples += 1
        self.prompt_tokens += prompt
        self.response_tokens += response

    def add_trained(self, *masks: torch.Tensor) -> None:
        """Tokens, and padding between them, that a forward and backward pass reads; the device is not waited for."""
        tokens = sum(mask.sum() for mask in masks)
        self.trained_tokens = self.trained_tokens + tokens
        self.padded_tokens = self.padded_tokens + sum(mask.numel() for mask in masks) - tokens

    def counts(self, trainable_parameters: int, total_parameters: int) -> Dict[str, int]:
        """The iteration's counts over all replicas; collective. Raises ConfigError unless they are the manifest's."""
        own = torch.tensor([int(getattr(self, name)) for name in _SUMMED], device=self._device)
        own *= int(self._leader)
        dist.all_reduce(own)
        return self._checked(dict(zip(_SUMMED, own.tolist())), trainable_parameters, total_parameters)

    def own_counts(self, trainable_parameters: int, total_parameters: int) -> Dict[str, int]:
        """As ``counts``, of a rank that counts for all."""
        own = {name: getattr(self, name) for name in _SUMMED}
        return self._checked(own, trainable_parameters, total_parameters)

    def _checked(self, counts: Dict[str, int], trainable_parameters: int, total_parameters: int) -> Dict[str, int]:
        counts["optimizer_steps"] = self.optimizer_steps
        counts["trainable_parameters"] = trainable_parameters
        counts["total_parameters"] = total_parameters
        check_counts(counts, self._workload, self._work)
        return counts
