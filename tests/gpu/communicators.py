"""Memory that communicators take outside of torch's allocator: ``python -m tests.gpu.communicators``.

One rank on one CUDA device, joined as a run joins it. Megatron makes several process groups; NCCL makes the
communicator of each at its first collective. Prints the device's used bytes, less what the allocator reserved, after
each step.
"""

from __future__ import annotations

import json

import torch
import torch.distributed as dist

from suite.worker.rank import RankIdentity
from suite.worker.world import join, leave

GROUPS = 8


def main() -> None:
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    tensor = torch.ones(1 << 20, device=device)
    steps = {"before": outside(device)}
    join(RankIdentity(0, 1, 0, 1), "cuda", 60)
    groups = [dist.new_group([0]) for _ in range(GROUPS)]
    steps["groups made"] = outside(device)
    for group in (None, *groups):
        dist.all_reduce(tensor, group=group)
    torch.cuda.synchronize(device)
    steps["groups used"] = outside(device)
    print(f"RESULT {json.dumps(steps)}", flush=True)
    leave()


def outside(device: torch.device) -> int:
    """Bytes used on the device that the caching allocator does not hold."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


if __name__ == "__main__":
    main()
