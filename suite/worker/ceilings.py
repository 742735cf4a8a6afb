"""What each device reaches by itself, and how fast the ranks exchange messages: measured before the run, by the process
group that the run uses.

Message sizes and bandwidths are counted as nccl-tests does (doc/PERFORMANCE.md of github.com/NVIDIA/nccl-tests): the
algorithm bandwidth is the message's bytes over the seconds of the slowest rank, and the bus bandwidth is that times a
factor which makes it comparable with what one link carries in one direction, whatever the number of ranks.
"""

import time
from statistics import median
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from suite.worker.facts import allows_tf32
from suite.worker.models import DTYPES, dtype_name
from suite.worker.world import World, barrier, synchronise

_CUDA_DEVICE: Dict[str, Any] = {"side": 8192, "copy_bytes": 1 << 30, "repeats": 10}
_CPU_DEVICE: Dict[str, Any] = {"side": 640, "copy_bytes": 1 << 26, "repeats": 3}
_ELEMENT_BYTES = 4
#: message sizes in bytes, and for how many seconds a pattern may exchange them; ``_REPEATS`` times each at most
_CUDA = (tuple(4**power << 20 for power in range(6)), 1.0)
_CPU = (tuple(4**power << 16 for power in range(4)), 0.1)
_REPEATS, _LATENCY_REPEATS = 5, 10
#: one function, newest name first; the last was torch 1's
_GATHERS = ("all_gather_single", "all_gather_into_tensor", "_all_gather_base")
#: of the device's free memory, the share that the largest message may have; there are two buffers of its size
_MEMORY_SHARE = 1 / 8
Ranks = List[int]


def measure_ceilings(world: World, precision: str) -> Dict[str, Any]:
    """The best of a few rounds: ``matmul_flops`` (FLOP/s in the run's ``precision``) and ``copy_bytes_per_second``
    (read and written). On a CPU all ranks of a node measure at once, on as many threads as they will run on."""
    setting = _CUDA_DEVICE if world.device.type == "cuda" else _CPU_DEVICE
    result = {
        "matmul_flops": 2 * setting["side"] ** 3 / _matmul_seconds(world, setting, DTYPES[precision]),
        "copy_bytes_per_second": 2 * setting["copy_bytes"] / _copy_seconds(world, setting),
        "matmul_dtype": dtype_name(precision),
        "allow_tf32": allows_tf32() if world.device.type == "cuda" else None,
    }
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    return result


def _matmul_seconds(world: World, setting: Dict[str, Any], dtype: torch.dtype) -> float:
    shape = (setting["side"], setting["side"])
    left, right = (torch.randn(shape, device=world.device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(left)
    return min(_seconds(world, synchronise, lambda: torch.matmul(left, right, out=out), setting["repeats"]))


def _copy_seconds(world: World, setting: Dict[str, Any]) -> float:
    source = torch.zeros(setting["copy_bytes"], dtype=torch.uint8, device=world.device)
    target = torch.empty_like(source)
    return min(_seconds(world, synchronise, lambda: target.copy_(source), setting["repeats"]))


def _seconds(world: World, meet: Callable[[World], None], work: Callable[[], Any], repeats: int) -> List[float]:
    """Of each repeat, after one that is not timed; it begins when this rank has come through ``meet``."""
    work()
    seconds = []
    for _ in range(repeats):
        meet(world)
        began = time.perf_counter()
        work()
        synchronise(world)
        seconds.append(time.perf_counter() - began)
    return seconds


class _Team(NamedTuple):
    """The ranks that one rank exchanges messages with at a time, and their group; buffers of the largest message."""

    ranks: Ranks
    rank: int
    group: Any
    buffer: torch.Tensor
    other: torch.Tensor


#: a message's bytes, and what sends it once
_Message = Tuple[int, Callable[[], Any]]


def _all_reduce(team: _Team, elements: int) -> _Message:
    message = team.buffer[:elements]
    return elements * _ELEMENT_BYTES, lambda: dist.all_reduce(message, group=team.group)


def _all_gather(team: _Team, elements: int) -> _Message:
    """The message is what every rank has in the end."""
    each = max(1, elements // len(team.ranks))
    whole, own = team.buffer[: each * len(team.ranks)], team.other[:each]
    gather = next(filter(None, (getattr(dist, name, None) for name in _GATHERS)))
    return whole.numel() * _ELEMENT_BYTES, lambda: gather(whole, own, group=team.group)


def _send_receive(team: _Team, elements: int) -> _Message:
    """Every rank sends to the next one and receives from the one before it, in a ring, as pipeline stages do."""
    place, count = team.ranks.index(team.rank), len(team.ranks)
    following, before = team.ranks[(place + 1) % count], team.ranks[place - 1]
    sent, received = team.buffer[:elements], team.other[:elements]

    def exchange() -> None:
        both = [
            dist.P2POp(dist.isend, sent, following, group=team.group),
            dist.P2POp(dist.irecv, received, before, group=team.group),
        ]
        for request in dist.batch_isend_irecv(both):
            request.wait()

    return elements * _ELEMENT_BYTES, exchange


_PATTERNS = {"all_reduce": _all_reduce, "all_gather": _all_gather, "send_receive": _send_receive}


def bus_factor(pattern: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    return {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks, "send_receive": 1.0}[pattern]


def scopes(world_size: int, local_world_size: int) -> List[Tuple[str, List[Ranks]]]:
    """What is measured: a name, and the teams that exchange messages at the same time.

    Launchers number ranks node by node. ``across_nodes`` has one rank of every node in a team, and the teams of all
    local ranks at once, so that devices share their node's adapters as they do in a run.
    """
    everyone = list(range(world_size))
    nodes = [everyone[first : first + local_world_size] for first in range(0, world_size, local_world_size)]
    across = [everyone[local::local_world_size] for local in range(local_world_size)]
    found = [(name, teams) for name, teams in (("within_node", nodes), ("across_nodes", across)) if len(teams[0]) > 1]
    return found if len(found) == 1 else [*found, ("all_ranks", [everyone])]


def measure_network(world: World) -> Optional[Dict[str, Any]]:
    """The facts ``network`` of docs/contracts.md, equal on every rank; None for a rank alone. All ranks call it.

    A network that does not work raises what torch.distributed raises: the run could not use it either.
    """
    if world.world_size == 1:
        return None
    sizes, seconds = _CUDA if world.device.type == "cuda" else _CPU
    sizes = fitting(sizes, _free_bytes(world))
    barrier(world)
    began = time.perf_counter()
    buffers = [torch.zeros(sizes[-1] // _ELEMENT_BYTES, dtype=torch.float32, device=world.device) for _ in range(2)]
    measurements = []
    for scope, teams in scopes(world.world_size, world.local_world_size):
        groups = [dist.new_group(ranks) for ranks in teams]
        own = next(index for index, ranks in enumerate(teams) if world.rank in ranks)
        for pattern in _PATTERNS:
            # Messages between pairs open channels that keep device memory, and not every run has such messages.
            is_runs_own = len(teams) == 1 and pattern != "send_receive"
            group = dist.group.WORLD if is_runs_own else groups[own]
            team = _Team(teams[own], world.rank, group, *buffers)
            measured = _measure(world, team, pattern, sizes, seconds)
            measurements.append({"scope": scope, "pattern": pattern, "ranks": len(teams[own]), **measured})
        barrier(world)
        dist.destroy_process_group(groups[own])
    del buffers, team
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    return {
        "backend": dist.get_backend(),
        "dtype": "float32",
        "measurements": measurements,
        "seconds": time.perf_counter() - began,
        "convention": "nccl-tests: all-reduce 2(n-1)/n, all-gather (n-1)/n of the gathered bytes, send and receive 1",
    }


def _free_bytes(world: World) -> Optional[int]:
    """Of the fullest device; None on a CPU, whose messages are small."""
    if world.device.type != "cuda":
        return None
    free = torch.tensor(torch.cuda.mem_get_info(world.device)[0], dtype=torch.int64, device=world.device)
    dist.all_reduce(free, op=dist.ReduceOp.MIN)
    return int(free)


def fitting(sizes: Tuple[int, ...], free_bytes: Optional[int]) -> Tuple[int, ...]:
    """The sizes for which there is room; the smallest in any case."""
    if free_bytes is None:
        return sizes
    return tuple(size for size in sizes if size == sizes[0] or size <= _MEMORY_SHARE * free_bytes)


def _measure(world: World, team: _Team, pattern: str, sizes: Tuple[int, ...], left: float) -> Dict[str, Any]:
    """Latency, and a line per size that the seconds ``left`` allow. What is decided on the way follows from figures
    that all ranks share, so all decide alike."""
    latency_bytes, work = _PATTERNS[pattern](team, 1)
    latencies = _slowest_seconds(world, work, _LATENCY_REPEATS)
    lines: List[Dict[str, float]] = []
    for size in sizes:
        size_bytes, work = _PATTERNS[pattern](team, size // _ELEMENT_BYTES)
        repeats = _REPEATS
        if lines:
            expected = lines[-1]["median_seconds"] * size_bytes / lines[-1]["bytes"]
            repeats = min(repeats, int(left / expected) - 1)  # less one to warm up
        if repeats < 1:
            break
        seconds = _slowest_seconds(world, work, repeats)
        left -= sum(seconds) + max(seconds)
        rate = size_bytes / min(seconds)
        lines.append(
            {
                "bytes": size_bytes,
                "seconds": min(seconds),
                "median_seconds": median(seconds),
                "algorithm_bytes_per_second": rate,
                "bus_bytes_per_second": rate * bus_factor(pattern, len(team.ranks)),
            }
        )
    return {"latency_bytes": latency_bytes, "latency_seconds": median(latencies), "sizes": lines}


def _slowest_seconds(world: World, work: Callable[[], Any], repeats: int) -> List[float]:
    """Of each repeat on the slowest of all ranks."""
    seconds = _seconds(world, barrier, work, repeats)
    slowest = torch.tensor(seconds, dtype=torch.float64, device=world.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist()
