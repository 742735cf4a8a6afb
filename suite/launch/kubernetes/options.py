"""Options of the commands that render and submit a Kubernetes cluster's objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

if TYPE_CHECKING:
    from suite.launch.kubernetes.settings import KubernetesSettings

Text = str | None
Texts = list[str] | None


@dataclass(frozen=True)
class KubernetesOptions:
    """Where the pods may go and what they may use."""

    HEADING: ClassVar = "Pods"

    variant: Annotated[
        str,
        typer.Option(
            help="job (needs no operator), jobset, trainjob, pytorchjob, mpijob, volcano, rayjob or raycluster",
        ),
    ] = "job"
    context: Annotated[Text, typer.Option(help="kubeconfig context [default: the current one]")] = None
    namespace: Annotated[Text, typer.Option(help="namespace [default: the context's]")] = None
    queue: Annotated[Text, typer.Option(help="Kueue's local queue; with volcano its queue")] = None
    priority_class: Annotated[Text, typer.Option(help="priority class of the pods")] = None
    node_selector: Annotated[Texts, typer.Option(metavar="LABEL=VALUE", help="LABEL=VALUE of the nodes; repeat")] = None
    toleration: Annotated[
        Texts, typer.Option(metavar="TAINT", help="taint to run beside: KEY[=VALUE][:EFFECT]; repeat")
    ] = None
    topology: Annotated[
        Text,
        typer.Option(metavar="LABEL", help="node label whose value all nodes of a run share, e.g. of a rack"),
    ] = None
    gpu_resource: Annotated[str, typer.Option(help="what the cluster calls a GPU")] = "nvidia.com/gpu"
    rdma: Annotated[
        Text, typer.Option(metavar="RESOURCE[=N]", help="RESOURCE[=COUNT] of host adapters for RDMA in each pod")
    ] = None
    cpus_per_node: Annotated[Text, typer.Option(metavar="N", help="cores of each pod, e.g. 96")] = None
    memory_per_rank: Annotated[Text, typer.Option(help="host memory of a rank, e.g. 64g")] = None
    shared_memory: Annotated[str, typer.Option(help="/dev/shm of each pod")] = "16Gi"
    scratch: Annotated[str, typer.Option(help="/tmp of each pod, on the node's disk")] = "16Gi"
    claim: Annotated[
        Text,
        typer.Option(help="persistent volume claim, writable from all nodes, that takes the bundles too"),
    ] = None
    gang: Annotated[
        Text, typer.Option(metavar="coscheduling|volcano", help="trainjob: who places all pods or none")
    ] = None
    pull_secret: Annotated[Texts, typer.Option(help="secret with the log-in of the image's registry; repeat")] = None
    service_account: Annotated[Text, typer.Option(help="service account of the pods")] = None
    runtime_class: Annotated[Text, typer.Option(help="runtime class of the pods, e.g. nvidia")] = None
    pod_annotation: Annotated[Texts, typer.Option(help="KEY=VALUE, e.g. of a network that carries RDMA; repeat")] = None
    pending_timeout: Annotated[str, typer.Option(help="give up a run that has waited for nodes this long")] = "1h"
    keep: Annotated[str, typer.Option(help="how long the cluster keeps a run that is over")] = "24h"

    def settings(self) -> KubernetesSettings:
        """Raises UsageError or ValidationError for values that no cluster takes."""
        from suite.launch.kubernetes.settings import KubernetesSettings
        from suite.spec.typed import pair, same_named, seconds

        resource, _, count = (self.rdma or "").partition("=")
        body = {
            **same_named(self, KubernetesSettings),
            "namespace": self.namespace or "default",
            "node_selector": dict(pair("--node-selector", text) for text in self.node_selector or ()),
            "tolerations": tuple(map(_toleration, self.toleration or ())),
            "rdma_resource": resource or None,
            "rdma_count": count or 1,
            "cpus": self.cpus_per_node,
            "pull_secrets": tuple(self.pull_secret or ()),
            "pod_annotations": dict(pair("--pod-annotation", text) for text in self.pod_annotation or ()),
            "wait_seconds": round(seconds("--pending-timeout", self.pending_timeout)),
            "keep_seconds": round(seconds("--keep", self.keep)),
        }
        return KubernetesSettings.model_validate(body)


def _toleration(text: str) -> dict[str, str | None]:
    """``KEY``, ``KEY=VALUE``, ``KEY:EFFECT`` or ``KEY=VALUE:EFFECT``."""
    rest, colon, effect = text.rpartition(":")
    key, equals, value = (rest if colon else text).partition("=")
    return {"key": key, "value": value if equals else None, "effect": effect or None if colon else None}
