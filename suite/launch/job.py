"""The one thing a launcher is given: what to start, where, on what, when to give it up; and where images have it."""

from pydantic import Field

from suite.spec.base import Frozen
from suite.spec.manifest import Limits


class Mount(Frozen):
    """A folder of the host that the ranks see at ``target``."""

    source: str
    target: str
    read_only: bool = True


class JobLimits(Limits):
    """When a job is given up, and what it may use."""

    memory_bytes: int | None = Field(
        default=None,
        gt=0,
        description="host memory of one rank. Without a container this limits the address space, of which CUDA "
        "reserves far more than it uses: there it fits CPU runs only",
    )


class Place(Frozen):
    """What ranks see and may use where they run."""

    env: dict[str, str] = Field(default={}, description="variables added to those the ranks would have anyway")
    stack: tuple[str, ...] = Field(
        default=(),
        description="backend, device, kernels, architecture and the packages whose code is known: what a process "
        "imports that ranks may be forked from; empty: each rank is started by itself",
    )
    image: str | None = Field(default=None, description="container image; null: the ranks run on the host")
    devices: tuple[str, ...] | None = Field(
        default=None, description="ids of the devices the ranks may see; empty: none; null: as the host has it"
    )
    device_count: int | None = Field(
        default=None, ge=0, description="how many devices, whichever they are; null where ``devices`` names them"
    )
    mounts: tuple[Mount, ...] = ()
    labels: dict[str, str] = Field(default={}, description="how the run is found in a container runtime or a cluster")


class Site(Place):
    """Where a run's ranks find what they need, as they see it, and what its launcher adds to their job."""

    python: str = Field(description="the stack's interpreter")
    bundle: str = Field(description="the run's folder")
    python_path: str = Field(description="PYTHONPATH that makes suite.worker importable")
    memory_bytes: int | None = Field(default=None, description="host memory of one rank")


class Job(Place):
    """One run as a launcher sees it: the same command on ``ranks_per_node`` ranks of each of ``nodes``."""

    name: str = Field(min_length=1, description="the run id: names containers, batch jobs and their labels")
    argv: tuple[str, ...] = Field(min_length=1, description="command of one rank, never a shell line")
    nodes: int = Field(default=1, gt=0)
    ranks_per_node: int = Field(gt=0)
    limits: JobLimits = JobLimits()
    working_directory: str | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def torchrun_variables(job: Job, rank: str, local_rank: str, node_rank: str, address: str, port: str) -> dict[str, str]:
    """torchrun's environment contract for one rank. Values may be what a scheduler or a shell replaces there."""
    return {
        "RANK": rank,
        "WORLD_SIZE": str(job.ranks),
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": str(job.ranks_per_node),
        "GROUP_RANK": node_rank,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }


def torchrun_argv(job: Job, node_rank: str, address: str, port: str, logs: str | None = None) -> tuple[str, ...]:
    """One node's command: torchrun around the worker, under the job's own interpreter. ``address``: of the first node,
    as numbers, since names may not resolve. ``logs``: where torchrun keeps files of its own, else below TMPDIR."""
    python, *worker = job.argv
    return (
        *(python, "-m", "torch.distributed.run"),
        *(f"--nnodes={job.nodes}", f"--nproc_per_node={job.ranks_per_node}", f"--node_rank={node_rank}"),
        # with underscores, which torch before 2.0 asks for
        *("--rdzv_backend=static", f"--master_addr={address}", f"--master_port={port}"),
        "--max_restarts=0",
        *(() if logs is None else (f"--log_dir={logs}",)),
        *worker,
    )


#: in images: the stack's interpreter, the folder that makes suite.worker importable, and that of bundles
PYTHON, PYTHON_PATH, RUNS = "/opt/stack/bin/python", "/opt/suite/src", "/work/runs"
