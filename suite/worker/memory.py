"""Peaks of memory per phase: the caching allocator's on CUDA, the resident set's on the host."""

import gc
from typing import Dict, Optional

import torch

from suite.worker.resident import peak_resident_bytes, reset_peak_resident

Peaks = Dict[str, Optional[int]]


class MemoryProbe:
    """Peaks since the last ``reset``. ``baseline_bytes``: resident before the model was built (contracts)."""

    def __init__(self, device: torch.device, baseline_bytes: int) -> None:
        self._device = device
        self._baseline_bytes = baseline_bytes

    def reset(self) -> None:
        reset_peak_resident()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def forget_setup(self) -> None:
        """Between set-up and iteration 0: give back what building left behind, so that no later peak holds it."""
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
        self.reset()

    def peaks(self) -> Peaks:
        """The fields of a ``memory`` event. ``peak_device_bytes`` is what the whole device uses at this moment:
        the allocator keeps what it reserved, so at the end of a phase this is the phase's peak but for cudaFree."""
        resident = peak_resident_bytes()
        if self._device.type != "cuda":
            return {
                "peak_allocated_bytes": max(0, resident - self._baseline_bytes),
                "peak_reserved_bytes": None,
                "peak_device_bytes": None,
                "peak_resident_bytes": resident,
                "allocation_retries": None,
            }
        free, total = torch.cuda.mem_get_info(self._device)
        return {
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(self._device),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(self._device),
            "peak_device_bytes": total - free,
            "peak_resident_bytes": resident,
            "allocation_retries": torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0),
        }
