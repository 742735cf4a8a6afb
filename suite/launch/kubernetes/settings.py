"""What a run needs to know of the cluster it goes to, in names and numbers as Kubernetes takes them, and its options.

None of it changes the work that is measured.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

import typer
from pydantic import AfterValidator, Field, PositiveInt

from suite.spec.base import Frozen
from suite.spec.typed import MOST_RANKS

#: Whatever a variant appends (``-worker-12``, ``-node-0-12``, the random end of a pod's name) stays within 63.
NAME_LENGTH = 50
_HASH_LENGTH = 8
_PREFIX = "suite-"
_SUFFIXES = {"": Fraction(1), "m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}
_SUFFIXES |= {suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)}
_SUFFIXES |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?")


def object_name(run_id: str, length: int = NAME_LENGTH) -> str:
    """The run's name in the cluster: a DNS-1035 label of at most so many characters, its own for each run id."""
    plain = re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-")
    if len(_PREFIX + plain) <= length and plain == run_id.lower().replace(".", "-"):
        return _PREFIX + plain
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:_HASH_LENGTH]
    room = length - len(_PREFIX) - _HASH_LENGTH - 1
    return f"{_PREFIX}{plain[:room].rstrip('-') or 'run'}-{digest}"


def literal(text: str) -> str:
    """Text that an argument or a variable's value will hold as it is: the kubelet would replace ``$(NAME)`` in it."""
    return text.replace("$", "$$")


def quantity_number(text: str) -> Fraction:
    """The number that a quantity such as ``16Gi``, ``500m`` or ``2e3`` means. Raises ValueError for any other text."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write 8, 500m or 16Gi")
    number, exponent, suffix = match.groups()
    return Fraction(number + (exponent or "")) * _SUFFIXES[suffix or ""]


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
