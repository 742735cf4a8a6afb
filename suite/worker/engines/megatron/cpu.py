"""What megatron-core 0.16.1 needs to run on a CPU, where it was never meant to: process-wide patches."""

import types
from functools import partial
from typing import Any

import torch

from suite.worker.engines.megatron import stack

#: one line for each patch, for the notes of a run
CPU_PATCHES = (
    "CPU patch: torch.cuda.current_device returns the CPU (Megatron allocates parameters, buffers and messages there)",
    "CPU patch: helper tensors of schedules, clip_grads, optimizer, grad_scaler, utils are made on the CPU, not 'cuda'",
    "CPU patch: Tensor.cuda does nothing (tied embeddings are moved before the pipeline stages share them)",
    "CPU patch: Tensor.type names float tensors torch.cuda.* (the optimizers compare these names)",
    "CPU patch: tokens for experts are counted where they are, not copied from a device on a stream of its own",
    "CPU patch: CUDA generator states are not saved and restored (recompute; dropout is 0)",
)


class _TorchWithoutCuda(types.ModuleType):
    """``torch`` as a Megatron module sees it, with factories that read the device "cuda" as "cpu"."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        return partial(_made_on_cpu, found) if name in ("tensor", "zeros") else found


def _made_on_cpu(make: Any, *args: Any, **options: Any) -> torch.Tensor:
    return make(*args, **{**options, "device": "cpu"} if options.get("device") == "cuda" else options)


_tensor_type = torch.Tensor.type


def _type_as_on_cuda(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
    """As ``Tensor.type``, but the name of a CPU tensor's type is the one its CUDA twin would have."""
    named = _tensor_type(tensor, *args, **options)
    return named.replace("torch.", "torch.cuda.", 1) if isinstance(named, str) else named


def _read_counts(dispatcher: Any, point: str, tokens_per_expert: Any = None) -> Any:
    """What a dispatch copies to the host at this point, as numbers."""
    if point == dispatcher.cuda_dtoh_point:
        for name in ("input_splits", "output_splits", "output_splits_tp"):
            splits = getattr(dispatcher, name)
            if torch.is_tensor(splits):
                setattr(dispatcher, name, splits.tolist())
    return tokens_per_expert


def apply_cpu_patches() -> None:
    """Patch torch and Megatron for this process; again does no harm."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    for module in (stack.schedules, stack.clip_grads, stack.mixed_precision_optimizer, stack.grad_scaler, stack.utils):
        module.torch = _TorchWithoutCuda("torch")
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.Tensor.type = _type_as_on_cuda
    stack.parallel_random._get_cuda_rng_state = lambda *_, **__: torch.empty(0, dtype=torch.uint8)
    stack.parallel_random._set_cuda_rng_state = lambda *_, **__: None
    stack.MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = "none on a CPU"
    stack.MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = _read_counts
