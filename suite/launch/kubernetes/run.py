"""A run on Kubernetes: the site of its ranks, its objects, and creating them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from suite.launch.cluster.launcher import Document
from suite.launch.cluster.submission import FOLDER, Submission
from suite.launch.cluster.torchrun import EVENTS_ON_OUTPUT
from suite.launch.image_paths import PYTHON, PYTHON_PATH, RUNS
from suite.launch.job import Job, Site
from suite.launch.kubernetes.client import Cluster, kind_of
from suite.launch.kubernetes.hand_over import hand_over
from suite.launch.kubernetes.kept import forget_kept
from suite.launch.kubernetes.pod import ATTEMPT_LABEL, MANIFEST
from suite.launch.kubernetes.render import parse, render
from suite.launch.kubernetes.settings import KubernetesSettings
from suite.spec.manifest import Manifest
from suite.spec.version import suite_version

ENVIRONMENT = "environment.json"
#: images need not know one, and a read-only root has none: caches of compilers go where a rank may write
_HOME = {"HOME": "/tmp"}
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
        env={**EVENTS_ON_OUTPUT, **_HOME, "SUITE_IMAGE": image, **network, **env},
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
        MANIFEST: submission.manifest.model_dump_json(by_alias=True) + "\n",
        ENVIRONMENT: json.dumps(submission.environment, indent=2, sort_keys=True) + "\n",
    }


def render_run(submission: Submission, settings: KubernetesSettings) -> str:
    """The YAML of a run. Raises UsageError where its job cannot be what the settings ask for."""
    about = about_run(submission, settings)
    return render(submission.job, bundle_folder(submission.job), settings, run_files(submission), about)


def run_document(submission: Submission, settings: KubernetesSettings, context: str | None, root: Path) -> Document:
    """The YAML of a run, and the facts by which it is found again. ``root``: the results folder.

    Raises UsageError where its job cannot be what the settings ask for.
    """
    text = render_run(submission, settings)
    known = submission.with_scheduler(
        context=context,
        settings=settings.model_dump(mode="json"),
        objects=[[kind_of(body), body["metadata"]["name"]] for body in parse(text)],
        folder=bundle_folder(submission.job),
        spool=str(spool_path(root, submission.run_id).resolve()),
    )
    return Document(submission.run_id, text, (known,))


def submit_run(cluster: Cluster, document: Document) -> Submission:
    """Create the objects of a run. Raises UsageError, and leaves nothing in the cluster, where it is refused."""
    (submission,) = document.submissions
    objects = parse(document.text)
    attempt = submission.scheduler.get("attempt")
    if attempt is not None:
        objects[-1]["metadata"].setdefault("labels", {})[ATTEMPT_LABEL] = attempt
    hand_over(cluster, objects)
    spool = Path(submission.fact("spool", str))
    spool.unlink(missing_ok=True)
    forget_kept(spool)
    return submission.with_scheduler(server=cluster.server)


def spool_path(root: Path, run_id: str) -> Path:
    """Where the last output of a cancelled run is kept; no submission's name."""
    return root / FOLDER / f"{run_id}.kept"


def bundle_folder(job: Job) -> str:
    """The run's folder as its ranks see it."""
    return f"{RUNS}/{job.name}"
