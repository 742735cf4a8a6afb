"""A submission on Kubernetes: the site of its ranks, its objects, and handing them over."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite.launch.cluster.submission import Submission
from suite.launch.cluster.torchrun import EVENTS_ON_OUTPUT
from suite.launch.docker.document import PYTHON, PYTHON_PATH, RUNS
from suite.launch.job import Job, Site
from suite.launch.kubernetes.client import Cluster, kind_of
from suite.launch.kubernetes.hand_over import hand_over
from suite.launch.kubernetes.pod import MANIFEST
from suite.launch.kubernetes.render import parse, render
from suite.launch.kubernetes.settings import KubernetesSettings
from suite.spec.manifest import Manifest
from suite.spec.version import suite_version

ENVIRONMENT = "environment.json"
#: NCCL looks for its peers on the first interface that it likes; in a pod that is the cluster's network
_NETWORK = {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "eth0"}


def kubernetes_site(
    manifest: Manifest, image: str, env: Mapping[str, str], memory_bytes: int | None = None, python: str = PYTHON
) -> Site:
    """Where the ranks find things in a pod. ``env``: variables that the user adds; ``memory_bytes``: of one rank."""
    on_gpus = manifest.measure.device == "cuda"
    network = _NETWORK if on_gpus and manifest.layout.nodes > 1 else {}
    return Site(
        python=python,
        bundle=f"{RUNS}/{manifest.run.id}",
        python_path=PYTHON_PATH,
        env={**EVENTS_ON_OUTPUT, "SUITE_IMAGE": image, **network, **env},
        image=image,
        device_count=manifest.layout.devices_per_node if on_gpus else 0,
        memory_bytes=memory_bytes,
    )


def about_run(submission: Submission, settings: KubernetesSettings) -> dict[str, str]:
    """What the objects say of the run to whoever finds them in the cluster."""
    manifest, layout = submission.manifest, submission.manifest.layout
    device = settings.gpu_resource if manifest.measure.device == "cuda" else "CPU ranks"
    return {
        "suite/run-id": manifest.run.id,
        "suite/plan": manifest.run.plan,
        "suite/manifest-hash": manifest.hash,
        "suite/work-hash": manifest.work_hash,
        "suite/version": suite_version(),
        "suite/backend": manifest.backend.name,
        "suite/size": manifest.size.name,
        "suite/layout": layout.label(),
        "suite/hardware": f"{layout.nodes} nodes x {layout.devices_per_node} {device}, {manifest.measure.precision}",
        "suite/stack": ", ".join(f"{package} {version}" for package, version in manifest.stack.items()),
    }


def run_files(submission: Submission) -> dict[str, str]:
    """What goes with the objects: the manifest for the ranks, and the rest of what a bundle needs."""
    return {
        MANIFEST: submission.manifest.model_dump_json(by_alias=True, indent=2) + "\n",
        ENVIRONMENT: json.dumps(submission.environment, indent=2, sort_keys=True) + "\n",
    }


def render_run(submission: Submission, settings: KubernetesSettings) -> str:
    """The YAML of a run. Raises UsageError where its job cannot be what the settings ask for."""
    about = about_run(submission, settings)
    return render(submission.job, bundle_folder(submission.job), settings, run_files(submission), about)


def submit_run(cluster: Cluster, submission: Submission, settings: KubernetesSettings, spool: Path) -> Submission:
    """Hand a run over. ``spool``: where its last words are kept when it is cancelled.

    Raises UsageError, and leaves nothing in the cluster, where it is refused.
    """
    placed = settings.model_copy(update={"namespace": cluster.namespace})
    hand_over(cluster, parse(render_run(submission, placed)))
    spool.unlink(missing_ok=True)
    facts = scheduler_facts(submission, placed, spool)
    named = submission.with_scheduler(context=cluster.context, server=cluster.server, **facts)
    return named.model_copy(update={"submitted": time.time()})


def scheduler_facts(submission: Submission, settings: KubernetesSettings, spool: Path) -> dict[str, Any]:
    """What the scheduler must know to find a run again."""
    objects = parse(render_run(submission, settings))
    return {
        "settings": settings.model_dump(mode="json"),
        "objects": [[kind_of(body), body["metadata"]["name"]] for body in objects],
        "folder": bundle_folder(submission.job),
        "spool": str(spool.resolve()),
    }


def bundle_folder(job: Job) -> str:
    """The run's folder as its ranks see it."""
    return f"{RUNS}/{job.name}"
