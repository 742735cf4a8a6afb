"""From a job to the command of one node of a cluster: pure, a list of arguments, never a shell line."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from pydantic import Field

from suite.launch.job import Job
from suite.spec.base import Frozen

#: With it every rank's events are in the output, which is all that is sure to come back from a cluster.
EVENTS_ON_OUTPUT = {"SUITE_EVENTS_ON_STDOUT": "all"}


class Rendezvous(Frozen):
    """How the nodes of a run meet. Values may be what a scheduler or a shell replaces where the node starts."""

    address: str = Field(
        description="of the first node, reachable from every other; numbers, since names may not resolve"
    )
    port: str = Field(description="free on the first node")
    node_rank: str = Field(description="which of the run's nodes this is, from 0")


_FAILED_RANK = re.compile(rb"\s*rank\s*: (\d{1,9}) \(local_rank: \d+\)")
_SIGNALLED = re.compile(rb"torch\.[\w.]*SignalException: Process \d{1,9} got signal: (\d{1,2})\s*$")
_EXIT_CODE = re.compile(rb"\s*exitcode\s*: (-?\d{1,9})\b")


def torchrun_argv(job: Job, meeting: Rendezvous, logs: str | None = None) -> tuple[str, ...]:
    """One node's command: torchrun around the worker, under the job's own interpreter.

    The static rendezvous is the one that asks nobody's name: the address is given, the first node listens there.
    Options are spelt with underscores: torch before 2.0 asks for them, later versions take them. ``logs``: where
    torchrun keeps files of its own, else below TMPDIR; one that is killed leaves them there.
    """
    python, *worker = job.argv
    return (
        *(python, "-m", "torch.distributed.run"),
        *(f"--nnodes={job.nodes}", f"--nproc_per_node={job.ranks_per_node}", f"--node_rank={meeting.node_rank}"),
        *("--rdzv_backend=static", f"--master_addr={meeting.address}", f"--master_port={meeting.port}"),
        "--max_restarts=0",
        *(() if logs is None else (f"--log_dir={logs}",)),
        *worker,
    )


class FailedRank(NamedTuple):
    """A row of the table that torchrun prints last, of a rank that ended badly."""

    exit_code: int  # negative: signal
    is_first: bool  # the one that torchrun saw first; others it may have ended itself


def failed_ranks(lines: Iterable[bytes]) -> dict[int, FailedRank]:
    """By rank, the rows of torchrun's table of failures."""
    failed: dict[int, FailedRank] = {}
    rank: int | None = None
    is_first = False
    for line in lines:
        named, code = _FAILED_RANK.match(line), _EXIT_CODE.match(line)
        if line.startswith(b"Root Cause"):
            is_first = True
        elif named:
            rank = int(named[1])
        elif code and rank is not None:
            failed.setdefault(rank, FailedRank(int(code[1]), is_first))
            rank = None
    return failed


def signal_of_torchrun(lines: Iterable[bytes]) -> int | None:
    """The signal that torchrun says it was sent: it ends its ranks by it then, and its own exit code is 1."""
    return next((int(said[1]) for line in lines if (said := _SIGNALLED.match(line))), None)
