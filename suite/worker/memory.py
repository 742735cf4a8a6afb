"""Peaks of memory per phase: the caching allocator's on CUDA, the resident set's on the host."""

import gc
from typing import Any, Callable, Dict, Optional

import torch

from suite.worker.process import peak_resident_bytes, reset_peak_resident

Peaks = Dict[str, Optional[int]]


class MemoryProbe:
    """Peaks since the last ``reset``. ``baseline_bytes``: resident before the model was built (contracts).

    ``sleeps``: whether an engine lets go of device memory that torch goes on counting, so that torch's counts are
    nobody's; what the whole device uses is then known alone, by a ``note`` before each time that memory is let go of.
    ``others``: bytes of the device that rows hold with which this one takes turns.
    """

    def __init__(self, device: torch.device, baseline_bytes: int, sleeps: bool = False, others: int = 0) -> None:
        self._device, self._baseline_bytes, self._sleeps = device, baseline_bytes, sleeps
        self._others, self._used = others, 0

    def reset(self) -> None:
        reset_peak_resident()
        self._used = 0
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def note(self) -> None:
        """Memory is about to be let go of within a phase."""
        if self._sleeps:
            self._used = max(self._used, self._used_now())

    def during(self, wait: Callable[[], None]) -> None:
        """Wait for a turn: what the device's use grows by meanwhile is other rows'."""
        before = self._used_now()
        wait()
        self._others += self._used_now() - before

    def forget_setup(self) -> None:
        """Between set-up and iteration 0: give back what building left behind, so that no later peak holds it."""
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
        self.reset()

    def peaks(self) -> Peaks:
        """The fields of a ``memory`` event. ``peak_device_bytes`` is what the whole device uses at this moment, without
        ``others``: the allocator keeps what it reserved, so at the end of a phase this is the phase's peak but for
        cudaFree."""
        resident = peak_resident_bytes()
        if self._device.type != "cuda":
            return {
                "peak_allocated_bytes": max(0, resident - self._baseline_bytes),
                "peak_reserved_bytes": None,
                "peak_device_bytes": None,
                "peak_resident_bytes": resident,
                "allocation_retries": None,
            }
        return {
            "peak_allocated_bytes": None if self._sleeps else torch.cuda.max_memory_allocated(self._device),
            "peak_reserved_bytes": None if self._sleeps else torch.cuda.max_memory_reserved(self._device),
            "peak_device_bytes": max(self._used, self._used_now()),
            "peak_resident_bytes": resident,
            "allocation_retries": torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0),
        }

    def _used_now(self) -> int:
        if self._device.type != "cuda":
            return 0
        free, total = torch.cuda.mem_get_info(self._device)
        return int(total - free) - self._others


class Communicators:
    """Notes the memory outside of the allocator. It is the whole device's: other processes' and the CUDA context's
    too, so only differences tell what was added between two notes."""

    def __init__(self, device_type: str, local_rank: int) -> None:
        self._device = torch.device(device_type, local_rank) if device_type == "cuda" else None
        self._outside: Dict[str, int] = {}

    def note(self, when: str) -> None:
        if self._device is not None:
            torch.cuda.synchronize(self._device)
            free, total = torch.cuda.mem_get_info(self._device)
            self._outside[when] = total - free - torch.cuda.memory_reserved(self._device)

    def facts(self) -> Any:
        """``communicators`` of docs/contracts.md; None on a CPU."""
        return None if self._device is None else {"eager": False, "outside_allocator_bytes": dict(self._outside)}
