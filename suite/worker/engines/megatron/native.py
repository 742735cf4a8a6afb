"""Transformer Engine's layers in the place of megatron-core's own. Experimental: not run on a GPU yet."""

import os
from typing import Iterator

import torch

from suite.worker.engines.megatron.stack import clip_grads

#: layer norms that Transformer Engine fuses with the linear layer behind, by the beginning of the parameters' names
FUSED_LAYER_NORMS = {
    "self_attention.linear_qkv.layer_norm_": "input_layernorm.",
    "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
}
#: what megatron-core sets so that Transformer Engine takes cuDNN's fused attention
ATTENTION_SWITCHES = {"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "1", "NVTE_UNFUSED_ATTN": "0"}


def require() -> None:
    """Raise ValueError where this process has what native kernels cannot run with, or lacks what they need."""
    for name, value in ATTENTION_SWITCHES.items():
        if os.environ.get(name, value) != value:
            told = "{} is {} in the environment, and megatron-core would set it to {}; unset it for native kernels"
            raise ValueError(told.format(name, os.environ[name], value))
    try:
        import transformer_engine.pytorch  # noqa: F401
    except (ImportError, OSError) as error:
        told = "native kernels need Transformer Engine beside megatron-core, and it cannot be imported: {}"
        raise ValueError(told.format(error)) from error


def plain_name(name: str) -> str:
    """A parameter's name within its layer as megatron-core's own layers have it."""
    for fused, plain in FUSED_LAYER_NORMS.items():
        name = name.replace(fused, plain)
    return name


def notes(kernels: str, device: torch.device, norm: str) -> Iterator[str]:
    """Whose kernels the layers and the clipping run, by what was imported; the optimizer has a note of its own."""
    if kernels == "native":
        import transformer_engine

        version = getattr(transformer_engine, "__version__", "of unknown version")
        yield "Transformer Engine {}: linear layers with their {} fused, not run on a GPU before".format(version, norm)
        yield "attention: cuDNN's fused kernels through Transformer Engine (NVTE_FUSED_ATTN=1 alone)"
    else:
        yield "megatron-core local layers, without Transformer Engine and Apex: torch {}".format(norm)
        yield "attention: PyTorch's scaled dot-product attention for megatron-core's own, unfused without TE"
    if clip_grads.l2_norm_impl.__module__.startswith("megatron"):
        waits = "" if device.type == "cpu" else ", which waits for the device once per tensor"
        yield "gradient norm and clipping: megatron-core's own functions, tensor by tensor" + waits
    else:
        yield "gradient norm and clipping: multi-tensor kernels of {}".format(clip_grads.l2_norm_impl.__module__)
