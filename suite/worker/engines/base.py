"""What the loop needs from a training stack: one object per rank, the same calls on every rank."""

import importlib
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import torch

from suite.worker.samples import Samples

#: ``loss_fn(logprobs [b, R], values [b, R] or None, micro)`` -> (scalar loss, named statistics as detached scalars).
#: ``micro`` holds the micro batch's own rows of every tensor given to ``train``, cut to its longest response R.
#: Statistics may share the loss's storage: an engine whose stack changes the loss in place gives it a copy.
LossFunction = Callable[
    [torch.Tensor, Optional[torch.Tensor], Dict[str, torch.Tensor]], Tuple[torch.Tensor, Dict[str, torch.Tensor]]
]

#: of an engine that generates ``without_cudnn``
WITHOUT_CUDNN = "generation: attention without cuDNN's kernels, which make a plan for each new length"


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Attention by torch's other kernels. On a Hopper GPU torch prefers cuDNN's, which spend 0.04 s of the host on each
    length that is new to them (docs/results/README.md)."""
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)


class Engine(ABC):
    """A policy with value head, its reference and its optimizer, laid out over the ranks by a stack.

    b samples of this replica, which may differ in length; R is the longest response, T the longest sample. All ranks of
    a replica pass the same arguments and get the same results. What the algorithm has no use for is not built or asked.
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
    #: what the phases call again and again: each call shows that the rank is not stuck, so that a phase may last longer
    #: than a run may be silent
    models: Tuple[torch.nn.Module, ...] = ()

    #: when each sample of the last ``generate`` was complete, in seconds after its start; None: not told
    finish_seconds: Optional[Sequence[float]] = None

    @classmethod
    def load(cls, manifest: Dict[str, Any]) -> None:
        """Import what this manifest needs beyond what the engine's class did: on a CPU, memory counts from here on.
        Of the manifest a process that ranks are forked from has the size's architecture alone."""
        importlib.import_module("torch._dynamo")  # as torch's optimizers do when they are built (torch/_compile.py)

    def weights(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """The policy's weights as they are now, whole and without padding, one by one, under the names that Hugging
        Face's model of the family has, on every rank: for a generation engine. Collective; without a value head.
        Raises ValueError where this engine cannot give them."""
        raise ValueError("{} gives no weights to a generation engine".format(type(self).__name__))

    @abstractmethod
    def generate(self, prompts: Samples) -> Samples:
        """Sample responses of exactly ``prompts.response_lengths`` tokens at the manifest's temperature.

        ``prompts.tokens``: [b, longest prompt], padded behind; the result's: [b, T], padded with zeros.
        """

    @abstractmethod
    def score(self, samples: Samples) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """Log-probs and values of the policy without gradient, [b, R] each, fp32, zero behind a response.

        Column j is response token j: its log-prob given all before it, and the value of the state before it; values
        are None where nobody learns them. Runs in micro batches of the manifest.
        """

    @abstractmethod
    def reference(self, samples: Samples) -> torch.Tensor:
        """Log-probs of the frozen reference policy, as ``score`` gives them."""

    @abstractmethod
    def train(self, samples: Samples, batch: Dict[str, torch.Tensor], loss_fn: LossFunction) -> Dict[str, float]:
        """One optimizer step over ``samples`` of this replica, with what the loss reads: [b, R] or [b] by name.

        Splits into the manifest's micro batches, runs forward, ``loss_fn`` and backward on each, accumulates the
        mean gradient over micro batches and replicas, clips, steps. Returns the mean of the loss's statistics over
        this replica's micro batches, with ``gradient_norm`` (before clipping) where the stack reports it,
        ``skipped_steps``: 1 where the optimizer made no step because a gradient overflowed in fp16, else 0, and
        ``padded_tokens``: positions of padding that went through forward and backward.
        """
