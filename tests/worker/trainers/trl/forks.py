"""``forks.py RESULTS MANIFEST...``: runs one after the other, whose ranks are forked from a process that imported TRL.

The stack is imported as the first manifest needs it. Exit codes of each run's ranks go to the file RESULTS, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from suite.launch.ports import free_port
from suite.worker import __main__ as worker
from suite.worker.session import own_build
from suite.worker.trainers.base import Trainer
from tests.worker.tiny import rank_environment


def main(results: str, *paths: str) -> None:
    manifests = [json.loads(Path(path).read_text()) for path in paths]
    build = own_build(manifests[0])
    assert isinstance(build, type) and issubclass(build, Trainer)
    build.load(manifests[0])
    codes = [run(path, manifest["layout"]["devices_per_node"]) for path, manifest in zip(paths, manifests, strict=True)]
    Path(results).write_text(json.dumps(codes))


def run(path: str, ranks: int) -> list[int]:
    port, children = free_port(), []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            be_rank(path, rank_environment(rank, ranks, port) if ranks > 1 else {}, rank)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def be_rank(path: str, variables: dict[str, str], rank: int) -> None:
    os.environ.update(variables)
    log = os.open(Path(path).with_name(f"rank-{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    code = 1
    try:
        code = worker.main([path])
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
