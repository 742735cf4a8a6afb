"""Memory that communicators take outside of torch's allocator: ``python -m tests.gpu.communicators eager|lazy``.

One rank on one CUDA device. Megatron makes several process groups; with ``device_id`` NCCL makes the communicator of
each at once (eager), without it at its first collective (lazy). Prints the device's used bytes, less what the allocator
reserved, after each step.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist

GROUPS = 8


def main() -> None:
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    tensor = torch.ones(1 << 20, device=device)
    steps = {"before": outside(device)}
    options = {"device_id": device} if sys.argv[1] == "eager" else {}
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, **options)
    groups = [dist.new_group([0]) for _ in range(GROUPS)]
    steps["groups made"] = outside(device)
    for group in (None, *groups):
        dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize(device)
    steps["groups used"] = outside(device)
    print(f"RESULT {json.dumps(steps)}", flush=True)
    dist.destroy_process_group()


def outside(device: torch.device) -> int:
    """Bytes used on the device that the caching allocator does not hold."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


if __name__ == "__main__":
    main()
