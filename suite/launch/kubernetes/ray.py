"""A run on a Ray cluster of KubeRay: what its pods, its submitter and the ranks on it are told. Pure."""

from __future__ import annotations

import json
import math
from typing import Any

from suite.launch.job import Job
from suite.launch.kubernetes.names import quantity_number
from suite.launch.kubernetes.settings import KubernetesSettings, Variant
from suite.launch.patterns import Pattern

VARIANTS: tuple[Variant, ...] = ("rayjob", "raycluster")
#: what ``suite.worker.ray_ranks`` reads
RANKS_VARIABLE = "SUITE_RANKS"
DASHBOARD_PORT, HEALTH_PORT = 8265, 52365
#: what the entry point says where it ends the run itself
PATTERNS = (Pattern("timeout", "cause", r"^the ranks are ended: \d+ s are over"),)
#: How long a finished RayJob keeps its Ray pods and their devices: long enough for a driver to see how they ended.
RELEASE_SECONDS = 60
#: as a run has it that starts Ray itself (suite/worker/trainers/ray_cluster.py)
_VARIABLES = {
    # who reaches the pods' network reaches Ray, as before 2.60; a token would have to lie on every pod, unlike at home
    "RAY_AUTH_MODE": "disabled",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_COLOR_PREFIX": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_SLOTS_PER_RANK, _LEAST_SLOTS, _NO_DEVICE = 16, 32, 1000
#: of /dev/shm for Ray's objects; the rest is NCCL's and the trainer's
_STORE_SHARE = 0.5


def is_ray(settings: KubernetesSettings) -> bool:
    return settings.variant in VARIANTS


def entry_point(job: Job) -> tuple[str, ...]:
    """The program of Ray's job. It says nothing of the run: it goes through several shells, variables through none."""
    return (job.argv[0], "-m", "suite.worker.ray_ranks")


def pod_variables(job: Job) -> dict[str, str]:
    """The variables of a Ray pod, which Ray hands to all processes of the trainer: the job's, and what Ray is told."""
    changed = {} if job.device_count else {"CUDA_VISIBLE_DEVICES": _no_devices(job)}
    return {**job.env, **_VARIABLES, **changed, RANKS_VARIABLE: ranks_text(job)}


def ranks_text(job: Job) -> str:
    """What is to be started on the cluster, as ``suite.worker.ray_ranks`` reads it."""
    asked: dict[str, Any] = {
        "argv": job.argv,
        "nodes": job.nodes,
        "ranks_per_node": job.ranks_per_node,
        "limit_seconds": math.ceil(job.limits.run_seconds),
    }
    if not job.device_count:
        asked["variables"] = {"CUDA_VISIBLE_DEVICES": job.env.get("CUDA_VISIBLE_DEVICES", "")}
    return json.dumps(asked)


def start_parameters(job: Job, settings: KubernetesSettings) -> dict[str, str]:
    """Options of ``ray start`` on every node. Ray's CPUs are slots for processes, of which trainers ask for several a
    device; on CPU ranks its GPUs are slots as well."""
    store = math.floor(quantity_number(settings.shared_memory) * _STORE_SHARE)
    return {
        "num-cpus": str(max(_SLOTS_PER_RANK * job.ranks_per_node, _LEAST_SLOTS)),
        "num-gpus": str(job.ranks_per_node),
        "object-store-memory": str(store),
        "disable-usage-stats": "true",
    }


def submit_script(job: Job, name: str) -> str:
    """How a pod beside a RayCluster runs the job on it, once its head answers; it prints what the job prints."""
    address = f"--address http://{name}-head-svc:{DASHBOARD_PORT}"
    waiting = f"until ray job list {address} >/dev/null 2>&1; do sleep 2; done"
    return f"{waiting}; exec ray job submit {address} -- {' '.join(entry_point(job))}"


def _no_devices(job: Job) -> str:
    """Numbers that no driver knows: Ray hands them out as GPUs, and none of its processes finds one by them."""
    return ",".join(str(_NO_DEVICE + rank) for rank in range(job.ranks_per_node))
