"""How a job ended, what to do about each way to fail, and what a launcher is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field

from suite.launch.job import Job, Site
from suite.spec.base import Frozen, UsageError
from suite.spec.manifest import Manifest

FailureKind = Literal[
    "oom_device",
    "oom_host",
    "nccl_timeout",
    "hang",
    "rank_lost",
    "image_missing",
    "image_pull",
    "gpu_unavailable",
    "driver_mismatch",
    "disk_full",
    "port_taken",
    "config",
    "timeout",
    "interrupted",
    "unknown",
]


class Failure(Frozen):
    """Why a run did not end well, with the lines that prove it."""

    kind: FailureKind
    phase: str | None = Field(default=None, description="where it happened, else the last phase rank 0 reported")
    iteration: int | None = None
    evidence: tuple[str, ...] = ()


#: ``ok``: every rank ended with exit code 0 and nobody stopped the run.
EndStatus = Literal["ok", "failed", "interrupted"]


class Outcome(Frozen):
    """One job's end."""

    status: EndStatus
    exit_codes: dict[int, int | None] = Field(
        description="by rank; negative: ended by that signal; null: never started, or not seen to end"
    )
    elapsed_seconds: float = Field(ge=0, description="from the start of the ranks to the end of the last one")
    failure: Failure | None = Field(default=None, description="null exactly where the status is ok")


class LauncherUnavailable(UsageError):
    """What starts the runs does not answer any more: this one is not over, and no other can be started."""


OnEvent = Callable[[dict[str, Any]], None]


class Launcher(Protocol):
    """One way to run a job."""

    name: str

    def site(self, manifest: Manifest, bundle: Path, python: str) -> Site:
        """Where the ranks of this run find interpreter and bundle. ``bundle`` is absolute, ``python`` as asked for."""

    def facts(self, job: Job) -> dict[str, Any]:
        """What environment.json tells of where the job runs beyond this host; no paths, a bundle is published."""

    def run(self, job: Job, folder: Path, on_event: OnEvent) -> Outcome:
        """Run the job to its end, calling ``on_event`` with each event of rank 0 as it arrives. ``folder``: the bundle,
        into which ranks write ``events/rank-N.jsonl`` and the launcher what they print, ``logs/rank-N.log``.

        Afterwards nothing of the job is running any more, as far as that can be told. Raises UsageError when it cannot
        be started as it asks, and LauncherUnavailable; what goes wrong later is an Outcome.
        """


#: What to do after a failure of each kind, in one sentence.
NEXT_STEPS: dict[FailureKind, str] = {
    "oom_device": "The model did not fit: take more devices, ZeRO or tensor parallel, offload, a smaller micro batch.",
    "oom_host": "The host ran out of memory: take fewer ranks, a smaller size, no offload, or a higher limit.",
    "nccl_timeout": "A collective did not finish: check the links (nvidia-smi topo -m, dmesg), try NCCL_DEBUG=INFO.",
    "hang": "The ranks went silent: read the stacks in evidence and logs; if the work is that slow, raise the limit.",
    "rank_lost": "A rank was ended from outside or crashed: read its log and the kernel's (dmesg), then run again.",
    "image_missing": "The image is not on this machine: build or pull it (suite images), or name another.",
    "image_pull": "The image could not be pulled: check its name, the registry and the log-in; pull it by hand once.",
    "gpu_unavailable": "The ranks saw no usable GPU: see nvidia-smi, the ids asked for, and if the stack is for CUDA.",
    "driver_mismatch": "The GPU driver does not fit the stack: update it, or take a stack for its CUDA and this GPU.",
    "disk_full": "A file system is full: free space where the evidence says (runs, /tmp or /dev/shm), then run again.",
    "port_taken": "Another program listens where the ranks were to meet: run it again, which takes another port.",
    "config": "The stack cannot start as it is set up: mend what the evidence names; suite doctor checks it.",
    "timeout": "The run took longer than its limit: raise the limit, or ask for fewer iterations or a smaller size.",
    "interrupted": "The run was stopped on request: the same command again redoes it and keeps what is done.",
    "unknown": "Nothing known fits: read the evidence and the whole log of the rank it names.",
}
