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
            rich_help_panel="Pods",
        ),
    ] = "job"
    context: Annotated[
        Text, typer.Option(help="kubeconfig context [default: the current one]", rich_help_panel="Pods")
    ] = None
    namespace: Annotated[Text, typer.Option(help="namespace [default: the context's]", rich_help_panel="Pods")] = None
    queue: Annotated[Text, typer.Option(help="Kueue's local queue; with volcano its queue", rich_help_panel="Pods")] = (
        None
    )
    priority_class: Annotated[Text, typer.Option(help="priority class of the pods", rich_help_panel="Pods")] = None
    node_selector: Annotated[Texts, typer.Option(help="LABEL=VALUE of the nodes; repeat", rich_help_panel="Pods")] = (
        None
    )
    toleration: Annotated[
        Texts, typer.Option(help="taint to run beside: KEY[=VALUE][:EFFECT]; repeat", rich_help_panel="Pods")
    ] = None
    topology: Annotated[
        Text,
        typer.Option(help="node label whose value all nodes of a run share, e.g. of a rack", rich_help_panel="Pods"),
    ] = None
    gpu_resource: Annotated[str, typer.Option(help="what the cluster calls a GPU", rich_help_panel="Pods")] = (
        "nvidia.com/gpu"
    )
    rdma: Annotated[
        Text, typer.Option(help="RESOURCE[=COUNT] of host adapters for RDMA in each pod", rich_help_panel="Pods")
    ] = None
    cpus_per_node: Annotated[Text, typer.Option(help="cores of each pod, e.g. 96", rich_help_panel="Pods")] = None
    memory_per_rank: Annotated[Text, typer.Option(help="host memory of a rank, e.g. 64g", rich_help_panel="Pods")] = (
        None
    )
    shared_memory: Annotated[str, typer.Option(help="/dev/shm of each pod", rich_help_panel="Pods")] = "16Gi"
    scratch: Annotated[str, typer.Option(help="/tmp of each pod, on the node's disk", rich_help_panel="Pods")] = "16Gi"
    claim: Annotated[
        Text,
        typer.Option(
            help="persistent volume claim, writable from all nodes, that takes the bundles too", rich_help_panel="Pods"
        ),
    ] = None
    gang: Annotated[
        Text, typer.Option(help="trainjob: coscheduling or volcano places all pods or none", rich_help_panel="Pods")
    ] = None
    pull_secret: Annotated[
        Texts, typer.Option(help="secret with the log-in of the image's registry; repeat", rich_help_panel="Pods")
    ] = None
    service_account: Annotated[Text, typer.Option(help="service account of the pods", rich_help_panel="Pods")] = None
    runtime_class: Annotated[
        Text, typer.Option(help="runtime class of the pods, e.g. nvidia", rich_help_panel="Pods")
    ] = None
    pod_annotation: Annotated[
        Texts, typer.Option(help="KEY=VALUE, e.g. of a network that carries RDMA; repeat", rich_help_panel="Pods")
    ] = None
    pending_timeout: Annotated[
        str, typer.Option(help="give up a run that has waited for nodes this long", rich_help_panel="Pods")
    ] = "1h"
    keep: Annotated[str, typer.Option(help="how long the cluster keeps a run that is over", rich_help_panel="Pods")] = (
        "24h"
    )

    def settings(self) -> KubernetesSettings:
        """Raises UsageError or ValidationError for values that no cluster takes."""
        from suite.launch.kubernetes.settings import KubernetesSettings
        from suite.spec.typed import pair, seconds

        resource, _, count = (self.rdma or "").partition("=")
        body = {
            "variant": self.variant,
            "namespace": self.namespace or "default",
            "queue": self.queue,
            "priority_class": self.priority_class,
            "node_selector": dict(pair("--node-selector", text) for text in self.node_selector or ()),
            "tolerations": tuple(map(_toleration, self.toleration or ())),
            "topology": self.topology,
            "gpu_resource": self.gpu_resource,
            "rdma_resource": resource or None,
            "rdma_count": count or 1,
            "cpus": self.cpus_per_node,
            "shared_memory": self.shared_memory,
            "scratch": self.scratch,
            "claim": self.claim,
            "gang": self.gang,
            "pull_secrets": tuple(self.pull_secret or ()),
            "service_account": self.service_account,
            "runtime_class": self.runtime_class,
            "pod_annotations": dict(pair("--pod-annotation", text) for text in self.pod_annotation or ()),
            "wait_seconds": round(seconds(self.pending_timeout)),
            "keep_seconds": round(seconds(self.keep)),
        }
        return KubernetesSettings.model_validate(body)


def _toleration(text: str) -> dict[str, str | None]:
    """``KEY``, ``KEY=VALUE``, ``KEY:EFFECT`` or ``KEY=VALUE:EFFECT``."""
    rest, colon, effect = text.rpartition(":")
    key, equals, value = (rest if colon else text).partition("=")
    return {"key": key, "value": value if equals else None, "effect": effect or None if colon else None}
