"""What OpenRLHF generated and trained on, held to the manifest: samples from its rollouts, training from its actors."""

from typing import Any, Dict, List

import torch

from suite.worker.asked import draw_prompts
from suite.worker.rank import ConfigError
from suite.worker.trainers.drawn_model import ordinary
from suite.worker.trainers.openrlhf.label import Label
from suite.worker.trainers.tally import Tally
from suite.worker.world import World


class Count(Tally):
    """Over all ranks: the controller sees every sample."""

    def __init__(self, manifest: Dict[str, Any], world: World, total: int, trainable: int) -> None:
        """``total`` parameters, of which ``trainable`` train."""
        super().__init__(manifest, world)
        self._manifest = manifest
        self._parameters = (trainable, total)

    def take_samples(self, samples: List[Any], batch: int) -> None:
        """OpenRLHF's experiences of one sample each, before they are scored. Raises ConfigError for other samples than
        those of this ``batch``, each once, with the lengths that were forced on them."""
        numbers = sorted(Label.read(sample.labels[0]).first for sample in samples)
        found = {Label.read(sample.labels[0]).batch for sample in samples}
        if found != {batch} or numbers != list(range(len(self._prompts))):
            raise ConfigError("batch {} is not of its {} samples, each once".format(batch, len(self._prompts)))
        rows = ordinary(draw_prompts(self._manifest, batch), self._manifest["size"]["vocab"])
        for sample in samples:
            number = Label.read(sample.labels[0]).first
            tokens, response = sample.sequences[0], int(sample.action_mask.sum())
            prompt = tokens.numel() - response
            self.add_sample(number, prompt, response)
            if not torch.equal(tokens[:prompt], rows[number, :prompt]):
                raise ConfigError("sample {} does not begin with its prompt".format(number))

    def take_training(self, actors: List[Dict[str, Any]]) -> None:
        """What the ranks of the policy read from their probes. Raises ConfigError unless all made as many steps."""
        steps = {each["steps"] for each in actors}
        if len(steps) != 1:
            raise ConfigError("the policy's ranks made {} optimizer steps".format(sorted(steps)))
        self.optimizer_steps = steps.pop()
        self.trained_tokens = sum(each["tokens"] for each in actors)
        self.padded_tokens = sum(each["padding"] for each in actors)

    def close(self) -> Dict[str, int]:
        """The iteration's counts. Raises ConfigError unless they are the manifest's."""
        return self.own_counts(*self._parameters)
