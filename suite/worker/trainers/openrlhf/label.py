"""What a prompt's label says of its samples: their numbers, lengths and scores. Standard library alone."""

import json
from dataclasses import asdict, dataclass
from typing import List, Optional


@dataclass(frozen=True)
class Label:
    """The samples ``first``, ``first + 1``, ... of ``batch`` (counted from 0 with the fill), one for each length.

    ``new_tokens``: forced, one for each sample; ``scores``: one for each, or None where a score is the share of tokens
    below ``threshold``. In a finished sample's label there is one sample left, its own.
    """

    batch: int
    first: int
    new_tokens: List[int]
    scores: Optional[List[float]]
    threshold: int = 0

    @classmethod
    def read(cls, text: str) -> "Label":
        return cls(**json.loads(text))

    def write(self) -> str:
        """As text, which OpenRLHF carries with the prompt."""
        return json.dumps(asdict(self))

    def of_sample(self, row: int) -> str:
        """The text of this label for its ``row``-th sample alone."""
        scores = None if self.scores is None else [self.scores[row]]
        return Label(self.batch, self.first + row, [self.new_tokens[row]], scores, self.threshold).write()
