"""vLLM's plug-in on a CPU, loaded in each of its processes: linear layers keep their weights, to take new ones."""

import sys
from importlib import import_module

import torch


def register() -> None:
    """vLLM would pack a linear layer's weight for its own kernel and drop it; layers that keep it compute as torch."""

    def plain(layer: torch.nn.Module, remove_weight: bool = False) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    import_module("vllm.model_executor.layers.linear")
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "dispatch_cpu_unquantized_gemm" in vars(module):
            module.dispatch_cpu_unquantized_gemm = plain  # type: ignore[attr-defined]
