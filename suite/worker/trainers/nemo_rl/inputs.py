"""What NeMo-RL is given beside a drawn model: the manifest's prompts, and the rewards of its samples."""

from typing import Any, Dict, Iterator, List, Tuple

from suite.worker.asked import draw_prompts
from suite.worker.manifest import asked_iterations
from suite.worker.rank import ConfigError
from suite.worker.rewards import scores_of_all

#: Joins numbers to a text of one token each; with nothing around it, so that lengths are those of the manifest.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}{% endfor %}"


def prompts(manifest: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """Every prompt of the run in order: ``iteration``, ``number`` of its first sample in that, ``tokens``."""
    from suite.worker.trainers.drawn_model import ordinary

    group, vocab = manifest["workload"].get("group", 1), manifest["size"]["vocab"]
    for iteration in range(asked_iterations(manifest)):
        for place, row in enumerate(ordinary(draw_prompts(manifest, iteration)[::group], vocab).tolist()):
            yield {"iteration": iteration, "number": place * group, "tokens": row}


class Rewards:
    """The manifest's score of each sample, whatever was generated. The samples of a prompt are told apart by the order
    in which they are asked for, so that a group has its scores, but which of them has which is the order of arrival."""

    def __init__(self, manifest: Dict[str, Any]) -> None:
        self._manifest = manifest
        self._group = manifest["workload"].get("group", 1)
        self._scores: Dict[int, List[float]] = {}
        self._asked: Dict[Tuple[int, int], int] = {}

    def next(self, iteration: int, number: int) -> float:
        """Of the next sample of the prompt whose first sample has this number in its iteration.

        Raises ConfigError where a prompt has more samples than the workload's group.
        """
        place = self._asked.get((iteration, number), 0)
        if place >= self._group:
            raise ConfigError(
                "prompt {} of iteration {} has more than {} samples".format(number, iteration, self._group)
            )
        self._asked[iteration, number] = place + 1
        if iteration not in self._scores:
            self._scores[iteration] = scores_of_all(self._manifest, iteration).tolist()
        return self._scores[iteration][number + place]
