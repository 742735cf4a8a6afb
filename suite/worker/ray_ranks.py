"""``python -m suite.worker.ray_ranks``: the ranks of a run as processes on the nodes of a Ray cluster that is there.

The entry point of the job on a cluster that starts Ray itself, as KubeRay does. ``SUITE_RANKS`` holds what to start, as
JSON (``Wanted``). An actor of its own holds each rank and takes no CPU or GPU of Ray's: those are the trainer's. What
the ranks print is printed here, line by line. Exit code 0 when all ranks end so, else 1; then a table says which rank
ended how.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from suite.worker.ports import free_port

RANKS_VARIABLE = "SUITE_RANKS"
_NODES_SECONDS, _ASK_SECONDS, _END_SECONDS = 600.0, 2.0, 20.0
#: what one answer holds at most
_ANSWER_LINES = 1000
#: what Ray marks the node with that has the head
_HEAD = "node:__internal_head__"


class Wanted(NamedTuple):
    """What to start: the command of one rank, on how many nodes, for how long, and variables beyond their nodes'."""

    argv: List[str]
    nodes: int
    ranks_per_node: int
    limit_seconds: float
    variables: Dict[str, str] = {}  # noqa: RUF012 - read, never changed


class Ended(NamedTuple):
    """How a rank ended; a code below zero is a signal's number."""

    rank: int
    local_rank: int
    code: int


class RankProcess:
    """The actor of one rank: its process, and what that prints."""

    def start(self, argv: List[str], variables: Dict[str, str]) -> int:
        """Start the rank beside this actor, whose end the kernel makes the rank's own; its process id."""
        self._lines: "queue.Queue[Optional[bytes]]" = queue.Queue()
        self._process = subprocess.Popen(
            argv,
            env=rank_environment(os.environ, variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        threading.Thread(target=self._read, name="output", daemon=True).start()
        return self._process.pid

    def output(self, seconds: float) -> Tuple[List[bytes], Optional[int]]:
        """The next lines, waiting so long for the first; and the exit code once there are no more."""
        lines: List[bytes] = []
        with suppress(queue.Empty):
            line = self._lines.get(timeout=seconds)
            while line is not None and len(lines) < _ANSWER_LINES:
                lines.append(line)
                line = self._lines.get_nowait()
            if line is None:
                return lines, self._process.wait()
            lines.append(line)
        return lines, None

    def end(self, number: int) -> None:
        self._process.send_signal(number)

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def rank_environment(environment: Mapping[str, str], variables: Mapping[str, str]) -> Dict[str, str]:
    """A rank's variables: those of its node, without what Ray says to its own workers of themselves."""
    own = ("RAY_JOB_ID", "RAY_CLIENT_MODE", "RAY_RAYLET_PID", "RAY_NODE_ID", "RAY_JOB_CONFIG_JSON_ENV_VAR")
    return {**{name: value for name, value in environment.items() if name not in own}, **variables}


def main(environment: Mapping[str, str]) -> int:
    """Start the ranks, print what they print until the last has ended; the exit code."""
    import ray

    wanted = read_wanted(environment)
    try:
        ray.init(address="auto", log_to_driver=False, include_dashboard=None)
        nodes = _nodes(ray, wanted)
    except (ConnectionError, RuntimeError) as error:
        print("suite.worker.ray_ranks: {}".format(error), file=sys.stderr)
        return 1
    actors = _start(ray, nodes, wanted)
    ended = _follow(ray, actors, wanted, time.monotonic() + wanted.limit_seconds)
    ray.shutdown()
    failed = [each for each in ended if each.code != 0]
    if failed:
        _print(table(failed).encode())
    return 1 if failed else 0


def read_wanted(environment: Mapping[str, str]) -> Wanted:
    return Wanted(**json.loads(environment[RANKS_VARIABLE]))


def order(nodes: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The nodes that live, the head's first: rank 0 is where the job's own program runs."""
    living = [node for node in nodes if node["Alive"]]
    return sorted(living, key=lambda node: (_HEAD not in node["Resources"], node["NodeManagerAddress"], node["NodeID"]))


def variables(rank: int, wanted: Wanted, address: str, port: int, ray_address: str) -> Dict[str, str]:
    """What a rank finds of itself and the others, as torchrun would set it."""
    per_node = wanted.ranks_per_node
    return {
        **wanted.variables,
        "RANK": str(rank),
        "WORLD_SIZE": str(wanted.nodes * per_node),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RAY_ADDRESS": ray_address,
    }


def table(failed: List[Ended]) -> str:
    """Which rank ended how, the first to fail last, spelt as torchrun spells it, so that one reader reads both."""
    first, *others = ["  rank      : {} (local_rank: {})\n  exitcode  : {}".format(*each) for each in failed]
    return "\n".join(["Failures:", *others, "Root Cause (first observed failure):", first, ""])


def _nodes(ray: Any, wanted: Wanted) -> List[Dict[str, Any]]:
    """The nodes of the run, once as many are there. Raises RuntimeError where they do not come."""
    deadline = time.monotonic() + min(_NODES_SECONDS, wanted.limit_seconds)
    while True:
        living = order(ray.nodes())
        if len(living) >= wanted.nodes:
            return living[: wanted.nodes]
        if time.monotonic() > deadline:
            raise RuntimeError("{} of {} nodes joined the Ray cluster".format(len(living), wanted.nodes))
        time.sleep(1.0)


def _start(ray: Any, nodes: List[Dict[str, Any]], wanted: Wanted) -> List[Any]:
    """The actors, by rank, each of which has started its own."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    address, port = nodes[0]["NodeManagerAddress"], free_port()
    ray_address = ray.get_runtime_context().gcs_address
    remote = ray.remote(num_cpus=0, num_gpus=0, max_restarts=0)(RankProcess)
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    ranks = range(wanted.nodes * wanted.ranks_per_node)
    actors = [remote.options(scheduling_strategy=places[rank // wanted.ranks_per_node]).remote() for rank in ranks]
    found = [variables(rank, wanted, address, port, ray_address) for rank in ranks]
    ray.get([actor.start.remote(wanted.argv, own) for actor, own in zip(actors, found)])
    return actors


def _follow(ray: Any, actors: List[Any], wanted: Wanted, deadline: float) -> List[Ended]:
    """Print until every rank has ended, in this order; once one fails or the time is over the others are ended too."""
    waiting = {actor.output.remote(_ASK_SECONDS): rank for rank, actor in enumerate(actors)}
    ended: List[Ended] = []
    ending: Optional[float] = None
    while waiting:
        ready, _ = ray.wait(list(waiting), timeout=1.0)
        for reference in ready:
            rank = waiting.pop(reference)
            lines, code = _answer(ray, reference, rank)
            for line in lines:
                _print(line)
            if code is None:
                waiting[actors[rank].output.remote(_ASK_SECONDS)] = rank
            else:
                ended.append(Ended(rank, rank % wanted.ranks_per_node, code))
        now, number = time.monotonic(), None
        if ending is None and waiting and (now > deadline or any(each.code for each in ended)):
            if now > deadline:
                _print("the ranks are ended: {:.0f} s are over\n".format(wanted.limit_seconds).encode())
            number = signal.SIGTERM
        elif ending is not None and now > ending:
            number = signal.SIGKILL
        if number is not None:
            ending = now + _END_SECONDS
            for rank in waiting.values():
                actors[rank].end.remote(int(number))
    return ended


def _answer(ray: Any, reference: Any, rank: int) -> Tuple[List[bytes], Optional[int]]:
    """What an actor says; of one that is gone, that its rank was killed with it."""
    try:
        lines, code = ray.get(reference)
        return lines, code
    except ray.exceptions.RayError as error:
        text = "the actor of rank {} is gone: {}\n".format(rank, " ".join(str(error).split())[:500])
        return [text.encode()], -int(signal.SIGKILL)


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line if line.endswith(b"\n") else line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(os.environ))
