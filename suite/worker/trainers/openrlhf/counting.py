"""What OpenRLHF generates and trains on, by the manifest: prompts with labels of their samples, and a count."""

import json
from typing import Any, Dict, List, Tuple

import torch

from suite.worker.asked import draw_prompts, sample_lengths, scores_of_all
from suite.worker.rank import ConfigError
from suite.worker.trainers.drawn_model import ordinary
from suite.worker.trainers.iteration import Tally
from suite.worker.world import World


def rows(manifest: Dict[str, Any], batches: int) -> List[Dict[str, str]]:
    """A prompt each, in the order in which they are to be generated: ``input`` and ``label``.

    A label is JSON of the samples ``first``, ``first + 1``, ... of ``batch`` (counted from 0 with the fill): their
    ``new_tokens``, forced, and ``scores``, null where a score is the share of tokens below ``threshold``. A finished
    sample's has its own number in ``first``.
    """
    found = []
    prompts, responses = sample_lengths(manifest["workload"], manifest["work"])
    group, reward = manifest["workload"].get("group", 1), manifest["workload"]["reward"]
    for batch in range(batches):
        tokens = ordinary(draw_prompts(manifest, batch), manifest["size"]["vocab"]).tolist()
        scores = None if reward["kind"] == "token-below" else scores_of_all(manifest, batch).tolist()
        for first in range(0, len(prompts), group):
            own = slice(first, first + group)
            label = {"batch": batch, "first": first, "new_tokens": responses[own]}
            label.update(scores=scores and scores[own], threshold=reward.get("threshold"))
            found.append({"input": " ".join(map(str, tokens[first][: prompts[first]])), "label": json.dumps(label)})
    return found


def label_of(sample: Any) -> Dict[str, Any]:
    """Of an experience of OpenRLHF's of one sample."""
    return json.loads(sample.labels[0])


def loader(manifest: Dict[str, Any], batches: int, strategy: Any, tokenizer: Any) -> Tuple[Any, None, int]:
    """What ``prepare_datasets`` gives: the prompts by OpenRLHF's own data set and loader, in their order and from
    memory; nothing to evaluate; and the number of optimizer steps."""
    from openrlhf.datasets import PromptDataset
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = PromptDataset(rows(manifest, batches), tokenizer, strategy)
    steps = batches * manifest["workload"]["ppo_epochs"] * manifest["workload"]["optimizer_steps"]
    return StatefulDataLoader(data, batch_size=1, shuffle=False, collate_fn=data.collate_fn), None, steps


class Count(Tally):
    """Over all ranks: the controller sees every sample."""

    def __init__(self, manifest: Dict[str, Any], world: World, total: int, trainable: int) -> None:
        """``total`` parameters, of which ``trainable`` train."""
        super().__init__(manifest, world)
        self._manifest = manifest
        self.parameters = (trainable, total)

    def take_samples(self, samples: List[Any], batch: int) -> None:
        """OpenRLHF's experiences of one sample each, before they are scored. Raises ConfigError for other samples than
        those of this ``batch``, each once, with the lengths that were forced on them."""
        labels = [label_of(sample) for sample in samples]
        wanted = [(batch, number) for number in range(len(self._prompts))]
        if sorted((label["batch"], label["first"]) for label in labels) != wanted:
            raise ConfigError("batch {} is not of its {} samples, each once".format(batch, len(wanted)))
        rows = ordinary(draw_prompts(self._manifest, batch), self._manifest["size"]["vocab"])
        for number, sample in zip((label["first"] for label in labels), samples):
            tokens, response = sample.sequences[0], int(sample.action_mask.sum())
            prompt = tokens.numel() - response
            self.add_sample(number, prompt, response)
            if not torch.equal(tokens[:prompt], rows[number, :prompt]):
                raise ConfigError("sample {} does not begin with its prompt".format(number))

    def take_training(self, actors: List[Dict[str, Any]]) -> None:
        """What the ranks of the policy read from their probes."""
        self.optimizer_steps = actors[0]["steps"]
        self.trained_tokens = sum(each["tokens"] for each in actors)
        self.padded_tokens = sum(each["padding"] for each in actors)
