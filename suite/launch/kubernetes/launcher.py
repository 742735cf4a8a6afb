"""Kubernetes as a cluster launcher: each run's objects as YAML, created through the official client, all or none."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from suite.launch.cluster.launcher import EVENTS_ON_OUTPUT, ClusterLauncher, Document, NodeSetup, by_digest_note
from suite.launch.cluster.submission import Submission
from suite.launch.job import PYTHON, PYTHON_PATH, Site
from suite.launch.kubernetes import client
from suite.launch.kubernetes.client import Cluster, Refused, kind_of
from suite.launch.kubernetes.kept import forget_kept, spool_path
from suite.launch.kubernetes.pod import ATTEMPT_LABEL, bundle_folder, parse, render_run
from suite.launch.kubernetes.scheduler import KubernetesScheduler, clear_away
from suite.launch.kubernetes.settings import IMAGE, KubernetesSettings, quantity_number
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest

#: images need not know one, and a read-only root has none: caches of compilers go where a rank may write
_HOME = {"HOME": "/tmp"}
#: NCCL looks for its peers on the first interface that it likes; in a pod that is the cluster's network
_NETWORK = {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "eth0"}


class KubernetesLauncher(ClusterLauncher):
    """See ``ClusterLauncher``. A document is the YAML of one run."""

    name = "kubernetes"
    scheduler = KubernetesScheduler
    options = KubernetesSettings
    submit_help = """Submit runs to Kubernetes, one after the other, and collect their bundles. Exit 1 when one failed.

    Ctrl-C leaves the run in the cluster. Runs that the results folder or the cluster already has are skipped.
    With --output kubectl takes the files as they are, and `suite collect` finds their runs.
    """
    documents = "objects"
    suffix = ".yaml"
    command = "kubectl apply --server-side -f"
    separator = "---\n"
    waits = True

    def __init__(self, options: KubernetesSettings, nodes: NodeSetup) -> None:
        self._settings = options
        self._namespace = options.namespace if "namespace" in options.model_fields_set else None
        if nodes.image is None:
            raise UsageError("pods run images: name one with --image, best by digest (name@sha256:...)")
        if not IMAGE.fullmatch(nodes.image):
            raise UsageError(f"--image: {nodes.image!r} is not the name of an image")
        if nodes.mounts:
            raise UsageError("--mount shows folders of a node to a container; pods see none: leave it out")
        self._image, self._env = nodes.image, nodes.env
        self.notes = by_digest_note(nodes.image)
        cpus = options.cpus
        if cpus is not None and (options.memory_per_rank is None or quantity_number(cpus).denominator != 1):
            self.notes += (
                f"--cpus-per-node {cpus}: pods are not Guaranteed without a whole number and --memory-per-rank, and a "
                "static CPU manager gives them no own cores",
            )

    def connect(self, cluster: Cluster | None = None) -> None:
        """From now on everything is rendered for the namespace of this cluster."""
        self._cluster = cluster or client.connect(self._settings.context, self._namespace)
        self._settings = self._settings.model_copy(update={"namespace": self._cluster.namespace})

    def site(self, manifest: Manifest) -> Site:
        on_gpus = manifest.measure.device == "cuda"
        network = _NETWORK if on_gpus and manifest.layout.nodes > 1 else {}
        return Site(
            python=PYTHON,
            bundle=bundle_folder(manifest.run.id),
            python_path=PYTHON_PATH,
            env={**EVENTS_ON_OUTPUT, **_HOME, "SUITE_IMAGE": self._image, **network, **self._env},
            image=self._image,
            device_count=manifest.layout.devices_per_node if on_gpus else 0,
            memory_bytes=self._settings.memory_per_rank,
        )

    def render(self, submissions: Sequence[Submission], root: Path) -> list[Document]:
        documents = []
        for submission in submissions:
            text = render_run(submission, self._settings)
            known = submission.with_scheduler(
                context=self._settings.context,
                settings=self._settings.model_dump(mode="json"),
                objects=[[kind_of(body), body["metadata"]["name"]] for body in parse(text)],
                spool=str(spool_path(root, submission.run_id).resolve()),
            )
            documents.append(Document(submission.run_id, text, (known,)))
        return documents

    def announced(self, document: Document, token: str) -> Document:
        """Marked by the attempt, so that an earlier one of the same name is not taken for it."""
        known = (each.with_scheduler(server=self._cluster.server, attempt=token) for each in document.submissions)
        return document._replace(submissions=tuple(known))

    def submit(self, document: Document, earlier: Sequence[Submission]) -> tuple[Submission, ...]:
        for submission in earlier:
            clear_away(self._cluster, submission)
        (submission,) = document.submissions
        objects = parse(document.text)
        objects[-1]["metadata"]["labels"][ATTEMPT_LABEL] = submission.fact("attempt", str)
        hand_over(self._cluster, objects)
        forget_kept(Path(submission.fact("spool", str)))
        return document.submissions

    def where(self, submission: Submission) -> str:
        return f"{'/'.join(submission.scheduler['objects'][-1])} in namespace {self._settings.namespace}"

    def sent(self, document: Document) -> list[str]:
        (submission,) = document.submissions
        image, layout = f"image {self._image}", submission.manifest.layout
        asked = f"{layout.nodes} x {layout.devices_per_node} {submission.manifest.measure.device} ranks, {image}"
        objects = [f"{kind}/{name}" for kind, name in submission.fact("objects", list)]
        where = "" if self._namespace is None else f" in namespace {self._namespace}"
        return [f"{', '.join(objects)}{where}", asked]

    def rendered_json(self, document: Document) -> dict[str, Any]:
        return {"run": document.name, "text": document.text}

    def submitted_json(self, submissions: Sequence[Submission], statuses: Mapping[str, str]) -> dict[str, Any]:
        return {"runs": dict(statuses), "namespace": self._settings.namespace}


def hand_over(cluster: Cluster, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Create the objects, the run itself last and owner of the others; gives the run as the server made it. Raises
    UsageError where the server refuses one of them; then, as after Ctrl-C, nothing is left behind."""
    rehearse(cluster, objects)
    created: list[tuple[str, str]] = []
    try:
        for body in objects:
            created.append((kind_of(body), body["metadata"]["name"]))
            run = cluster.create(body)
        owner = {name: objects[-1][name] for name in ("apiVersion", "kind")}
        owner |= {name: run["metadata"][name] for name in ("name", "uid")}
        for kind, name in created[:-1]:
            cluster.patch(kind, name, {"metadata": {"ownerReferences": [owner]}})
    except BaseException as error:
        there_before = isinstance(error, Refused) and error.status == 409
        for kind, name in reversed(created[:-1] if there_before else created):
            with suppress(UsageError):
                cluster.delete(kind, name)
        raise
    return run


def rehearse(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    """Have the server check everything without making anything: the objects, the quota of all, and a pod of each kind,
    which a controller makes later, where nobody looks. Raises UsageError."""
    for body in objects:
        cluster.create(body, dry_run=True)
    templates = pod_templates(objects)
    for _, template in templates:
        metadata = {**template["metadata"], "generateName": "suite-"}
        try:
            cluster.create({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}, dry_run=True)
        except Refused as error:
            # a user who may not create pods may still create the Job, whose controller does
            if not (error.status == 403 and 'cannot create resource "pods"' in error.message):
                raise
    _check_quota(cluster, templates)


def _check_quota(cluster: Cluster, templates: list[tuple[int, dict[str, Any]]]) -> None:
    """Hold all pods together against what is left of each quota; where quotas may not be read, nothing is known."""
    total: defaultdict[str, Fraction] = defaultdict(Fraction)
    for count, template in templates:
        total["pods"] += count
        for container in template["spec"]["containers"]:
            for name, value in container.get("resources", {}).get("requests", {}).items():  # its limits are the same
                for key in (name, f"requests.{name}", f"limits.{name}"):
                    total[key] += count * quantity_number(str(value))
    try:
        quotas = cluster.find("ResourceQuota")
    except Refused:
        return
    for quota in quotas:
        status = quota.get("status", {})
        for name, limit in status.get("hard", {}).items():
            left = quantity_number(str(limit)) - quantity_number(str(status.get("used", {}).get(name, "0")))
            if name in total and total[name] > left and not quota["spec"].get("scopes"):
                raise UsageError(
                    f"the quota {quota['metadata']['name']} of namespace {cluster.namespace} leaves "
                    f"{math.floor(left)} of {name}; the run needs {math.ceil(total[name])}"
                )


def pod_templates(body: Any, count: int = 1) -> list[tuple[int, dict[str, Any]]]:
    """The templates of pods in an object or in several, and how many pods each is of."""
    if isinstance(body, list):
        return [found for each in body for found in pod_templates(each)]
    if not isinstance(body, dict):
        return []
    if "containers" in body.get("spec", {}):
        return [(count, body)]
    own_count = body.get("completions") or body.get("replicas") or 1
    return [found for part in body.values() for found in pod_templates(part, own_count)]
