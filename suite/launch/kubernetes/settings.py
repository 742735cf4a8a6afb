"""What a run needs to know of the cluster it goes to, in names and numbers as Kubernetes takes them; its options."""

import hashlib
import re
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from suite.spec.base import Frozen
from suite.spec.fields import Declared
from suite.spec.typed import MOST_RANKS, pairs, seconds, size

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


Variant = Literal["job", "jobset", "trainjob", "pytorchjob", "volcano", "rayjob", "raycluster"]

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?")
_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?"


def _of(pattern: str, words: str) -> AfterValidator:
    """Text of a pattern; ``words``: what is said of any other."""

    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return AfterValidator(checked)


def _duration(option: str, help: str) -> Declared:
    return Declared(option, help, reads=lambda option, text: round(seconds(option, text)), metavar="DURATION")


#: An API server says what more it asks of them; a namespace becomes part of its addresses.
Name = Annotated[str, _of(_NAME, "is no name that Kubernetes takes: at most 253 of A-Z a-z 0-9 - _ .")]
LabelValue = Annotated[str, _of(rf"({_NAME})?", "is no value that Kubernetes takes: at most 63 of A-Z a-z 0-9 - _ .")]
Key = Annotated[str, _of(rf"({_NAME}/)?{_NAME}", "is no name that Kubernetes takes for a label: name, or domain/name")]
Namespace = Annotated[str, _of(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "is no namespace: at most 63 of a-z 0-9 -")]
Quantity = Annotated[str, _of(_QUANTITY.pattern, "is not a quantity; write 8, 500m or 16Gi")]


class Toleration(Frozen):
    """A taint that the pods may run beside."""

    key: Key
    value: LabelValue | None = Field(default=None, description="null: any value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="null: any effect"
    )

    @model_validator(mode="before")
    @classmethod
    def _typed(cls, body: Any) -> Any:
        """``KEY``, ``KEY=VALUE``, ``KEY:EFFECT`` or ``KEY=VALUE:EFFECT``."""
        if not isinstance(body, str):
            return body
        rest, colon, effect = body.rpartition(":")
        key, equals, value = (rest if colon else body).partition("=")
        return {"key": key, "value": value if equals else None, "effect": effect or None if colon else None}


class KubernetesSettings(Frozen):
    """Where the pods of a run may go and what they may use there."""

    HEADING: ClassVar = "Pods"

    variant: Annotated[
        Variant,
        Declared(
            "--variant",
            "job (needs no operator), jobset, trainjob, pytorchjob, volcano, rayjob or raycluster",
            metavar="NAME",
        ),
    ] = "job"
    context: Annotated[str | None, Declared("--context", "kubeconfig context [default: the current one]")] = None
    namespace: Annotated[Namespace, Declared("--namespace", "namespace [default: the context's]")] = "default"
    queue: Annotated[LabelValue | None, Declared("--queue", "Kueue's local queue; with volcano its queue")] = None
    priority_class: Annotated[Name | None, Declared("--priority-class", "priority class of the pods")] = None
    node_selector: Annotated[
        dict[Key, LabelValue],
        Declared("--node-selector", "LABEL=VALUE of the nodes; repeat", "list", reads=pairs, metavar="LABEL=VALUE"),
    ] = Field(default={})
    tolerations: Annotated[
        tuple[Toleration, ...],
        Declared("--toleration", "taint to run beside: KEY[=VALUE][:EFFECT]; repeat", "list", metavar="TAINT"),
    ] = ()
    topology: Annotated[
        Key | None,
        Declared("--topology", "node label whose value all nodes of a run share, e.g. of a rack", metavar="LABEL"),
    ] = None
    gpu_resource: Annotated[Key, Declared("--gpu-resource", "what the cluster calls a GPU")] = "nvidia.com/gpu"
    rdma_resource: Annotated[
        Key | None, Declared("--rdma", "RESOURCE[=COUNT] of host adapters for RDMA in each pod", metavar="RESOURCE[=N]")
    ] = None
    rdma_count: int = Field(default=1, gt=0, le=MOST_RANKS)
    cpus: Annotated[Quantity | None, Declared("--cpus-per-node", "cores of each pod, e.g. 96", metavar="N")] = None
    memory_per_rank: Annotated[
        int | None, Declared("--memory-per-rank", "host memory of a rank, e.g. 64g", reads=size)
    ] = Field(default=None, description="bytes")
    shared_memory: Annotated[Quantity, Declared("--shared-memory", "/dev/shm of each pod")] = "16Gi"
    scratch: Annotated[Quantity, Declared("--scratch", "/tmp of each pod, on the node's disk")] = "16Gi"
    claim: Annotated[
        Name | None, Declared("--claim", "persistent volume claim, writable from all nodes, that takes the bundles too")
    ] = None
    gang: Annotated[
        Literal["coscheduling", "volcano"] | None, Declared("--gang", "trainjob: who places all pods or none")
    ] = None
    pull_secrets: Annotated[
        tuple[Name, ...], Declared("--pull-secret", "secret with the log-in of the image's registry; repeat", "list")
    ] = ()
    service_account: Annotated[Name | None, Declared("--service-account", "service account of the pods")] = None
    runtime_class: Annotated[Name | None, Declared("--runtime-class", "runtime class of the pods, e.g. nvidia")] = None
    pod_annotations: Annotated[
        dict[Key, str],
        Declared(
            "--pod-annotation",
            "KEY=VALUE, e.g. of a network that carries RDMA; repeat",
            "list",
            reads=pairs,
            metavar="NAME=VALUE",
        ),
    ] = Field(default={})
    wait_seconds: Annotated[
        PositiveInt, _duration("--pending-timeout", "give up a run that has waited for nodes this long [default: 1h]")
    ] = 3600
    keep_seconds: Annotated[
        PositiveInt, _duration("--keep", "how long the cluster keeps a run that is over [default: 24h]")
    ] = 86400

    @property
    def is_ray(self) -> bool:
        """Whether ranks run on a Ray cluster of KubeRay."""
        return self.variant in ("rayjob", "raycluster")

    @model_validator(mode="before")
    @classmethod
    def _count_of_adapters(cls, body: Any) -> Any:
        resource, sign, count = str(body.get("rdma_resource") or "").partition("=")
        return {**body, "rdma_resource": resource, "rdma_count": count} if sign else body
