"""What the loop needs from a generation engine."""

from abc import ABC, abstractmethod
from typing import Optional, Sequence, Tuple

import torch

from suite.worker.samples import Samples


class Generator(ABC):
    """An inference engine that generates in the policy's place; the same calls on every rank."""

    #: what a reader of the figures must know
    notes: Tuple[str, ...] = ()
    #: whether it generates the next batch while the policy trains on this one; then ``sync`` comes behind ``generate``
    overlaps = False
    #: of one that does: by how many updates of the policy the last batch's weights were older than those that it
    #: trains, and by what the last weights that were handed over are checked
    staleness: Optional[int] = None
    weights_sum: Optional[float] = None
    #: when each sample of the last ``generate`` was complete, in seconds after its start; None: not told
    finish_seconds: Optional[Sequence[float]] = None
    #: of the last ``generate``: [b, R] fp32, the engine's own log-probs of what it sampled, zero behind a response;
    #: None: not told. Their difference from the policy's own is the mismatch of the two stacks.
    logprobs: Optional[torch.Tensor] = None

    @abstractmethod
    def sync(self) -> None:
        """Give the engine the policy's weights as they are now, awake it where it sleeps. Collective."""

    @abstractmethod
    def generate(self, prompts: Samples) -> Samples:
        """As ``Engine.generate``."""

    def sleep(self) -> None:  # noqa: B027 -- most hold nothing that training needs
        """Free what the engine holds, where the layout asks for it; called when generation is over. Collective."""
