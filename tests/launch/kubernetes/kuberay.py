"""KubeRay's API, ray.io/v1, as far as the templates use it: fields, their types, and which must be there.

KubeRay publishes no model for Python. These are the names and types of ``ray-operator/apis/ray/v1``
(``rayjob_types.go``, ``raycluster_types.go``) in releases 1.2 to 1.7, which agree on them, in the words of the
Kubernetes client's models.
"""

from typing import NamedTuple

GROUP, VERSION = "ray.io", "v1"
#: whose fields are Kubernetes' own business: the tests hold the pods to its schemas, and post them as pods
POD = "PodTemplateSpec"


class Type(NamedTuple):
    """A type of the API: what the Kubernetes client's models are asked for, and the fields that no object may lack."""

    openapi_types: dict[str, str]
    required: tuple[str, ...] = ()


#: by kind, the type of its specification
SPECIFICATIONS = {"RayJob": "RayJobSpec", "RayCluster": "RayClusterSpec"}
TYPES = {
    "RayJobSpec": Type(
        {
            "entrypoint": "str",
            "submissionMode": "str",
            "backoffLimit": "int",
            "submitterConfig": "SubmitterConfig",
            "activeDeadlineSeconds": "int",
            "shutdownAfterJobFinishes": "bool",
            "ttlSecondsAfterFinished": "int",
            "rayClusterSpec": "RayClusterSpec",
            "submitterPodTemplate": POD,
        },
        required=("entrypoint",),  # up to 1.2
    ),
    "SubmitterConfig": Type({"backoffLimit": "int"}),
    "RayClusterSpec": Type(
        # the last one is set once a run has been collected
        {"headGroupSpec": "HeadGroupSpec", "workerGroupSpecs": "list[WorkerGroupSpec]", "suspend": "bool"},
        required=("headGroupSpec",),
    ),
    "HeadGroupSpec": Type(
        {"rayStartParams": "dict(str, str)", "template": POD},
        required=("rayStartParams", "template"),  # the first one up to 1.3
    ),
    "WorkerGroupSpec": Type(
        {
            "groupName": "str",
            "replicas": "int",
            "minReplicas": "int",
            "maxReplicas": "int",
            "rayStartParams": "dict(str, str)",
            "template": POD,
        },
        required=("groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"),
    ),
}
