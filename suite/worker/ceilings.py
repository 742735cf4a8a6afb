"""What this device reaches by itself, measured before the run: a matrix product and a copy."""

import time
from typing import Any, Callable, Dict

import torch

from suite.worker.facts import allows_tf32
from suite.worker.models import DTYPES
from suite.worker.world import World, synchronise

_CUDA: Dict[str, Any] = {"side": 8192, "copy_bytes": 1 << 30, "repeats": 10}
_CPU: Dict[str, Any] = {"side": 640, "copy_bytes": 1 << 26, "repeats": 3}


def measure_ceilings(world: World, precision: str) -> Dict[str, Any]:
    """The best of a few rounds: ``matmul_flops`` (FLOP/s in the run's ``precision``) and ``copy_bytes_per_second``
    (read and written). On a CPU all ranks of a node measure at once, on as many threads as they will run on."""
    setting, dtype = _CUDA if world.device.type == "cuda" else _CPU, DTYPES[precision]
    result = {
        "matmul_flops": 2 * setting["side"] ** 3 / _matmul_seconds(world, setting, dtype),
        "copy_bytes_per_second": 2 * setting["copy_bytes"] / _copy_seconds(world, setting),
        "matmul_dtype": str(dtype).replace("torch.", ""),
        "matmul_side": setting["side"],
        "allow_tf32": allows_tf32() if world.device.type == "cuda" else None,
        "source": "measured on this device before the run",
    }
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    return result


def _matmul_seconds(world: World, setting: Dict[str, Any], dtype: torch.dtype) -> float:
    shape = (setting["side"], setting["side"])
    left, right = (torch.randn(shape, device=world.device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    return _best_seconds(world, setting["repeats"], lambda: torch.matmul(left, right, out=out))


def _copy_seconds(world: World, setting: Dict[str, Any]) -> float:
    source = torch.zeros(setting["copy_bytes"], dtype=torch.uint8, device=world.device)
    target = torch.empty_like(source)
    return _best_seconds(world, setting["repeats"], lambda: target.copy_(source))


def _best_seconds(world: World, repeats: int, work: Callable[[], Any]) -> float:
    work()
    best = float("inf")
    for _ in range(repeats):
        synchronise(world)
        began = time.perf_counter()
        work()
        synchronise(world)
        best = min(best, time.perf_counter() - began)
    return best
