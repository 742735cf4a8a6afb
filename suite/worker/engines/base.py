"""What the PPO loop needs from a training stack: one object per rank, the same calls on every rank."""

from abc import ABC, abstractmethod
from typing import Callable, Dict, Tuple

import torch

#: ``loss_fn(logprobs [b, R], values [b, R], micro)`` -> (scalar loss, named statistics as detached scalars).
#: ``micro`` holds the micro batch's own rows of every tensor given to ``train``.
LossFunction = Callable[
    [torch.Tensor, torch.Tensor, Dict[str, torch.Tensor]], Tuple[torch.Tensor, Dict[str, torch.Tensor]]
]


class Engine(ABC):
    """A policy with value head, its reference and its optimizer, laid out over the ranks by a stack.

    P prompt tokens, R response tokens, T = P + R, b sequences of this replica. Every rank of a replica
    (tensor and pipeline neighbours) passes the same arguments and gets the same results back.
    """

    device: torch.device
    data_parallel_rank: int
    data_parallel_size: int
    #: true on exactly one rank of each replica: the one whose tensors stand for it in gather and scatter
    replica_leader: bool
    #: policy with value head, summed over all ranks, without vocabulary padding
    total_parameters: int
    #: of these, those that the optimizer updates
    trainable_parameters: int
    #: what a reader of the figures must know (patches that were active, kernels that were missing)
    notes: Tuple[str, ...] = ()
    #: what ``generate``, ``score``, ``reference`` and ``train`` call again and again: each call shows that the rank is
    #: not stuck, so that a phase may last longer than a run may be silent. Without any, only the ends of phases do.
    models: Tuple[torch.nn.Module, ...] = ()

    @abstractmethod
    def generate(self, prompts: torch.Tensor, new_tokens: int) -> torch.Tensor:
        """Sample exactly ``new_tokens`` per row at the manifest's temperature: [b, P] int64 -> [b, T] int64."""

    @abstractmethod
    def score(self, tokens: torch.Tensor, prompt_tokens: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and values of the policy without gradient: [b, T] -> ([b, R], [b, R]), fp32.

        Column j is response token j: its log-prob given all before it, and the value of the
        state before it. Runs in micro batches of the manifest.
        """

    @abstractmethod
    def reference(self, tokens: torch.Tensor, prompt_tokens: int) -> torch.Tensor:
        """Log-probs of the frozen reference policy: [b, T] -> [b, R], fp32."""

    @abstractmethod
    def train(self, batch: Dict[str, torch.Tensor], prompt_tokens: int, loss_fn: LossFunction) -> Dict[str, float]:
        """One optimizer step over ``batch`` (rows of this replica; ``tokens`` [b, T] and what the loss reads).

        Splits into the manifest's micro batches, runs forward, ``loss_fn`` and backward on each, accumulates the
        mean gradient over micro batches and replicas, clips, steps. Returns the mean of the loss's statistics over
        this replica's micro batches, with ``gradient_norm`` (before clipping) where the stack reports it, and
        ``skipped_steps``: 1 where the optimizer made no step because a gradient overflowed in fp16, else 0.
        """
