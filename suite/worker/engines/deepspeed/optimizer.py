"""AdamW of the DeepSpeed engine: torch's fused one, or with native kernels one of those that DeepSpeed compiles."""

import importlib
import os
import shutil
import time
from typing import Any, Dict, List, Optional, Tuple

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.git_version_info import accelerator_name, installed_ops
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

from suite.worker.manifest import adamw


def is_native(manifest: Dict[str, Any]) -> bool:
    return manifest["layout"].get("kernels", "torch") == "native"


def load_kernels(manifest: Dict[str, Any]) -> Tuple[str, ...]:
    """Have the optimizer's kernels ready before anything is built; what a reader must know of them.

    DeepSpeed compiles an operator that was not built at installation once per machine, in minutes, for which the ranks
    of a node wait. Raises ValueError where it cannot.
    """
    offloads = manifest["layout"]["offload_optimizer"]
    if not is_native(manifest):
        note = "kernels torch: torch.optim.AdamW (fused) as DeepSpeed's client optimizer, not its own compiled Adam"
        offloaded = "the offloaded optimizer is torch.optim.AdamW on the host, not DeepSpeedCPUAdam"
        return (note, offloaded) if offloads else (note,)
    builder = get_accelerator().create_op_builder("CPUAdamBuilder" if offloads else "FusedAdamBuilder")
    built = installed_ops.get(builder.name, False) and accelerator_name == get_accelerator().device_name()
    missing = None if built else _missing(needs_nvcc=not offloads and manifest["measure"]["device"] == "cuda")
    if missing is not None:
        raise ValueError(
            "kernels native: DeepSpeed's {} is not built here and cannot be: {}. Use --kernels torch, an image that "
            "has it, or a DeepSpeed installed with DS_BUILD_{}=1".format(builder.name, missing, builder.name.upper())
        )
    began = time.perf_counter()
    try:
        builder.load(verbose=False)
    except (RuntimeError, ImportError, OSError, AttributeError) as error:
        raise ValueError("kernels native: DeepSpeed's {} does not load".format(builder.name)) from error
    kernel = "DeepSpeedCPUAdam on the host" if offloads else "DeepSpeed's FusedAdam"
    made = "built with DeepSpeed" if built else "compiled here or taken from an earlier compilation"
    told = "kernels native: {} ({}, ready in {:.1f} s); everything else is torch's"
    return (told.format(kernel, made, time.perf_counter() - began),)


def _missing(needs_nvcc: bool) -> Optional[str]:
    """What DeepSpeed would need to compile an operator and does not find."""
    cpp_extension = importlib.import_module("torch.utils.cpp_extension")  # slow: only for who compiles
    if not cpp_extension.is_ninja_available():
        return "no ninja"
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        return "no C++ compiler"
    if needs_nvcc and not os.path.exists(os.path.join(cpp_extension.CUDA_HOME or "", "bin", "nvcc")):
        return "no nvcc"
    return None


def build_optimizer(manifest: Dict[str, Any], parameters: List[torch.nn.Parameter]) -> Any:
    """AdamW with the workload's coefficients on the layout's kernels, for which ``load_kernels`` was called."""
    if not is_native(manifest):
        return torch.optim.AdamW(parameters, fused=True, **adamw(manifest))
    if manifest["layout"]["offload_optimizer"]:
        return DeepSpeedCPUAdam(parameters, adamw_mode=True, **adamw(manifest))
    return FusedAdam(parameters, adam_w_mode=True, **adamw(manifest))
