"""What NeMo-RL is given: a drawn model, the manifest's prompts, and the rewards of its samples."""

from threading import Lock
from typing import Any, Dict, Iterator, List, Tuple

import torch

from suite.worker.asked import draw_prompts
from suite.worker.manifest import asked_iterations
from suite.worker.rank import ConfigError
from suite.worker.trainers.scores import scores_of_all

#: Joins numbers to a text of one token each; with nothing around it, so that lengths are those of the manifest.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}{% endfor %}"


def write_model(folder: str, manifest: Dict[str, Any]) -> None:
    """A model of the manifest's shape as ``from_pretrained`` reads it, and a tokenizer of numbers.

    Weights are drawn from the run's seed and saved in bfloat16.
    """
    from suite.worker.trainers.drawn_model import draw_model, write_tokenizer

    size = manifest["size"]
    model = draw_model(size, manifest["measure"]["seed"], torch.device("cpu")).to(torch.bfloat16)
    model.config.architectures = [type(model).__name__]
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder)
    write_tokenizer(folder, size["vocab"], chat_template=CHAT_TEMPLATE)


def prompts(manifest: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """Every prompt of the run in order: ``iteration``, ``number`` of its first sample in that, ``tokens``."""
    group = manifest["workload"].get("group", 1)
    ordinary = ordinary_tokens(manifest)
    for iteration in range(asked_iterations(manifest)):
        for place, row in enumerate((draw_prompts(manifest, iteration)[::group] % ordinary).tolist()):
            yield {"iteration": iteration, "number": place * group, "tokens": row}


def ordinary_tokens(manifest: Dict[str, Any]) -> int:
    """How many ids are plain numbers to the tokenizer: all but the special ones at the end of the vocabulary."""
    from suite.worker.trainers.drawn_model import SPECIAL_TOKENS

    return int(manifest["size"]["vocab"]) - len(SPECIAL_TOKENS)


class Rewards:
    """The manifest's score of each sample, whatever was generated. The samples of a prompt are told apart by the order
    in which they are asked for, so that a group has its scores, but which of them has which is the order of arrival."""

    def __init__(self, manifest: Dict[str, Any]) -> None:
        self._manifest = manifest
        self._group = manifest["workload"].get("group", 1)
        self._scores: Dict[int, List[float]] = {}
        self._asked: Dict[Tuple[int, int], int] = {}
        self._lock = Lock()

    def next(self, iteration: int, number: int) -> float:
        """Of the next sample of the prompt whose first sample has this number in its iteration.

        Raises ConfigError where a prompt has more samples than the workload's group.
        """
        with self._lock:
            place = self._asked.get((iteration, number), 0)
            if place >= self._group:
                raise ConfigError(
                    "prompt {} of iteration {} has more than {} samples".format(number, iteration, self._group)
                )
            self._asked[iteration, number] = place + 1
            return self._of(iteration)[number + place]

    def _of(self, iteration: int) -> List[float]:
        if iteration not in self._scores:
            self._scores[iteration] = scores_of_all(self._manifest, iteration).tolist()
        return self._scores[iteration]
