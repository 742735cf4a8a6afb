"""From a job to the document that the container runtime makes a container of. Pure."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from suite.launch.docker.session import SECURITY
from suite.launch.docker.settings import DockerSettings
from suite.launch.job import RUNS, Job
from suite.launch.node import node_arguments
from suite.spec.base import UsageError

NODE = ("/opt/suite/bin/python", "-m", "suite.launch.node")
#: Log rotation would lose what is read after a broken connection: the log grows as long as the run lives.
LOGGING = {"Type": "json-file", "Config": {"max-size": "1024g", "max-file": "1"}}


class RuntimeRules(NamedTuple):
    """What the set-up of the container runtime decides about a container."""

    user: str  # uid:gid
    access: Literal["nvidia", "cdi"] = "nvidia"
    remapped: bool = False  # the runtime gives users of a container other ids on the host
    volume: str | None = None  # name of the volume that takes the place of the job's mounts


def container_document(job: Job, settings: DockerSettings, rules: RuntimeRules) -> dict[str, Any]:
    """The body of POST /containers/create. Raises UsageError for several nodes."""
    if job.nodes > 1:
        raise UsageError(
            f"the docker launcher runs one node, not {job.nodes}; `suite submit` runs several on Kubernetes or Slurm"
        )
    has_gpus = bool(job.devices or job.device_count)
    limits = settings.limits(has_gpus)
    return {
        "Image": job.image,
        "Entrypoint": list(NODE),
        "Cmd": list(node_arguments(job, f"{RUNS}/{job.name}", limits)),
        "Env": [f"{name}={value}" for name, value in sorted(_variables(job, rules, has_gpus).items())],
        "User": rules.user,
        "WorkingDir": "/work",
        "Labels": dict(job.labels),
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "Init": True,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no"},
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": "exec,mode=1777"},
            "CapDrop": ["ALL"],
            "SecurityOpt": SECURITY,
            "UsernsMode": "host" if rules.remapped else "",
            "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in sorted(limits.items())],
            "ShmSize": settings.shm_bytes,
            "IpcMode": settings.ipc,
            "NetworkMode": settings.network,
            "CpusetCpus": settings.cpuset or "",
            **_memory(job),
            "LogConfig": LOGGING,
            "DeviceRequests": device_requests(job.devices or (), job.device_count, rules.access),
            "Mounts": _mounts(job, rules.volume),
        },
    }


def device_requests(ids: Sequence[str], count: int | None, access: Literal["nvidia", "cdi"]) -> list[dict[str, Any]]:
    """GPUs by ids or by count (-1: all), as the runtime's API wants them. CDI knows names only: the first so many."""
    if not ids and not count:
        return []
    if access == "cdi":
        names = ids or [str(index) for index in range(count or 0)]
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={name}" for name in names]}]
    wanted: dict[str, Any] = {"DeviceIDs": list(ids)} if ids else {"Count": count}
    return [{"Driver": "", "Capabilities": [["gpu"]], **wanted}]


def devices_word(job: Job) -> str:
    """``SUITE_DEVICES``: what the worker must see. ``ids:0,3``, ``count:2``, or nothing for none."""
    if job.devices:
        return f"ids:{','.join(job.devices)}"
    return f"count:{job.device_count}" if job.device_count else ""


def _variables(job: Job, rules: RuntimeRules, has_gpus: bool) -> dict[str, str]:
    user = f"uid-{rules.user.partition(':')[0]}"  # for libraries that ask for a name: the image knows none
    gpus = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"} if has_gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}
    basic = {"HOME": "/tmp", "USER": user, "LOGNAME": user, "SUITE_DEVICES": devices_word(job), **gpus}
    return {**basic, **job.env}


def _memory(job: Job) -> dict[str, int]:
    """The ranks' limits together, and no swap beyond them."""
    if job.limits.memory_bytes is None:
        return {}
    total = job.limits.memory_bytes * job.ranks_per_node
    return {"Memory": total, "MemorySwap": total}


def _mounts(job: Job, volume: str | None) -> list[dict[str, Any]]:
    if volume is not None:
        return [{"Type": "volume", "Source": volume, "Target": RUNS}]
    return [
        {"Type": "bind", "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}
        for mount in job.mounts
    ]
