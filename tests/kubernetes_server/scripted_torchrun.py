#!/opt/environment/bin/python -IS
"""A stand-in for torchrun in an image: starts tests/scripted_worker.py once for each rank of the node.

In the image it lies in the place of the stack's interpreter, so that the command of a pod is what the suite renders.
Like torchrun it ends the other ranks when one has failed or when it is told to end, says which one that was and how it
ended, or which signal it was sent, and its own status is 1 then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

PYTHON = "/opt/environment/bin/python"
WORKER = "/opt/scripted_worker.py"


def rank_commands(command: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """Command and own variables of each rank that torchrun's ``command`` would start on its node."""
    options = dict(word[2:].split("=", 1) for word in command if word.startswith("--") and "=" in word)
    per_node, node, nodes = int(options["nproc_per_node"]), int(options["node_rank"]), int(options["nnodes"])
    arguments = command[command.index("suite.worker") + 1 :]
    variables = {"WORLD_SIZE": str(nodes * per_node), "LOCAL_WORLD_SIZE": str(per_node), "MASTER_ADDR": "127.0.0.1"}
    return [
        (
            [PYTHON, WORKER, *arguments],
            {**variables, "MASTER_PORT": "1", "RANK": str(node * per_node + local), "LOCAL_RANK": str(local)},
        )
        for local in range(per_node)
    ]


def tell(rank: subprocess.Popen, variables: dict[str, str], code: int | None) -> None:
    """The end of torchrun's own words about the first rank that failed."""
    print(
        "Root Cause (first observed failure):\n[0]:\n"
        f"  rank      : {variables['RANK']} (local_rank: {variables['LOCAL_RANK']})\n"
        f"  exitcode  : {code} (pid: {rank.pid})",
        file=sys.stderr,
        flush=True,
    )


def main(command: list[str]) -> int:
    ranks: list[subprocess.Popen] = []

    def end() -> None:
        for rank in ranks:
            rank.kill()
        sys.exit(1)

    def told(number: int, frame: object) -> None:
        words = (
            f"torch.distributed.elastic.multiprocessing.api.SignalException: Process {os.getpid()} got signal: {number}"
        )
        print(words, file=sys.stderr, flush=True)
        end()

    signal.signal(signal.SIGTERM, told)
    signal.signal(signal.SIGINT, told)
    commands = rank_commands(command)
    for argv, variables in commands:
        ranks.append(subprocess.Popen(argv, env={**os.environ, **variables}))
    while True:
        codes = [rank.poll() for rank in ranks]
        if any(codes):
            local = next(index for index, code in enumerate(codes) if code)
            tell(ranks[local], commands[local][1], codes[local])
            end()
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
