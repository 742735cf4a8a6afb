"""What a run needs to know of the cluster it goes to; none of it changes the work that is measured."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from suite.launch.kubernetes.names import quantity_number
from suite.spec.base import Frozen
from suite.spec.bounds import MOST_RANKS

Variant = Literal["job", "jobset", "trainjob", "pytorchjob", "mpijob", "volcano", "rayjob", "raycluster"]

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?")


def _key(text: str) -> str:
    """A label's, resource's or taint's name: ``name`` or ``domain/name``."""
    domain, slash, name = text.rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (slash and not is_subdomain(domain)):
        raise ValueError("is no name that Kubernetes takes for a label: name, or domain/name")
    return text


def _label_value(text: str) -> str:
    if text and not _LABEL_NAME.fullmatch(text):
        raise ValueError("is no value that Kubernetes takes for a label: at most 63 of A-Z a-z 0-9 - _ .")
    return text


def _object_name(text: str) -> str:
    if not is_subdomain(text):
        raise ValueError("is no name of a Kubernetes object: at most 253 of a-z 0-9 - .")
    return text


def _namespace(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("is no name of a namespace: at most 63 of a-z 0-9 -")
    return text


def _quantity(text: str) -> str:
    quantity_number(text)
    return text


def is_subdomain(text: str) -> bool:
    """Whether it is a DNS-1123 subdomain of at most 253 characters."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


Key = Annotated[str, AfterValidator(_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
Namespace = Annotated[str, AfterValidator(_namespace)]
Quantity = Annotated[str, AfterValidator(_quantity)]


class Toleration(Frozen):
    """A taint that the pods may run beside."""

    key: Key
    value: LabelValue | None = Field(default=None, description="null: any value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="null: any effect"
    )


class KubernetesSettings(Frozen):
    """Where the pods of a run may go and what they may use there."""

    variant: Variant = "job"
    namespace: Namespace = "default"
    queue: LabelValue | None = Field(default=None, description="Kueue local queue; with Volcano its queue")
    priority_class: ObjectName | None = None
    node_selector: dict[Key, LabelValue] = Field(default={}, description="labels of the nodes that may take pods")
    tolerations: tuple[Toleration, ...] = ()
    topology: Key | None = Field(
        default=None, description="node label whose value all pods of a run share, e.g. of a rack or a block"
    )
    gpu_resource: Key = Field(default="nvidia.com/gpu", description="what a device plugin calls one GPU")
    rdma_resource: Key | None = Field(default=None, description="what a device plugin calls a host adapter")
    rdma_count: int = Field(default=1, gt=0, le=MOST_RANKS)
    cpus: Quantity | None = Field(default=None, description="cores of one pod")
    shared_memory: Quantity = Field(default="16Gi", description="/dev/shm of one pod")
    scratch: Quantity = Field(default="16Gi", description="/tmp of one pod, on the node's disk")
    claim: ObjectName | None = Field(
        default=None, description="persistent volume claim, writable from all nodes, that takes the bundles too"
    )
    gang: Literal["coscheduling", "volcano"] | None = Field(
        default=None, description="scheduler plug-in that places all pods of a TrainJob or none"
    )
    pull_secrets: tuple[ObjectName, ...] = ()
    service_account: ObjectName | None = None
    runtime_class: ObjectName | None = None
    pod_annotations: dict[Key, str] = Field(default={}, description="e.g. of a network that carries RDMA")
    wait_seconds: PositiveInt = Field(
        default=3600, description="how long the run may wait for nodes before it is given up"
    )
    keep_seconds: PositiveInt = Field(default=86400, description="how long a finished run stays in the cluster")


def is_pinned(image: str) -> bool:
    """Whether an image is named by digest. Raises ValueError where it cannot be the name of an image."""
    match = _IMAGE.fullmatch(image)
    if match is None:
        raise ValueError(f"{image!r} is not the name of an image")
    return match.group(1) is not None
