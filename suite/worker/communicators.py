"""What process groups take of a device: memory outside of torch's allocator, step by step until the engine is there."""

from typing import Any, Dict

import torch


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
