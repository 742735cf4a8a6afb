"""The operators' own kinds as custom resource definitions, made from the models that their projects publish on PyPI;
for KubeRay, which publishes none, of the fields that the templates use.

A definition says what an API server checks when an object is applied: types, required fields, and fields that it does
not know, which it drops without a word. Volcano publishes no model.
"""

from __future__ import annotations

import re
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from tests.launch.kubernetes import kuberay

Schema = dict[str, Any]
_ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_NUMBER_OR_TEXT: Schema = {"x-kubernetes-int-or-string": True}
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
}
_CONTAINER = re.compile(r"(list|dict)[\[(](?:str, ?)?(.*)[\])]")


class Kind(NamedTuple):
    """A kind of an operator, and the model of its specification."""

    group: str
    version: str
    kind: str
    plural: str
    model: str


#: of the package kubeflow-trainer-api
TRAINER = (
    Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", "JobsetV1alpha2JobSetSpec"),
    Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", "TrainerV1alpha1TrainJobSpec"),
    Kind(
        "trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes", "TrainerV1alpha1TrainingRuntimeSpec"
    ),
)
#: of the package kubeflow-training
TRAINING = (
    Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", "KubeflowOrgV1PyTorchJobSpec"),
    Kind("kubeflow.org", "v1", "MPIJob", "mpijobs", "KubeflowOrgV1MPIJobSpec"),
)

#: see tests/launch/kubernetes/kuberay.py
RAY = tuple(
    Kind(kuberay.GROUP, kuberay.VERSION, kind, f"{kind.lower()}s", model)
    for kind, model in kuberay.SPECIFICATIONS.items()
)


def definitions() -> list[dict[str, Any]]:
    """A custom resource definition for each kind."""
    from kubeflow.training import models as training
    from kubeflow_trainer_api import models as trainer

    found = [_definition(kind, pydantic_schema(getattr(trainer, kind.model))) for kind in TRAINER]
    found += [_definition(kind, generated_schema(kind.model, vars(training))) for kind in TRAINING]
    return found + [_definition(kind, generated_schema(kind.model, kuberay.TYPES)) for kind in RAY]


def _definition(kind: Kind, spec: Schema) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "apiVersion": _PLAIN[str],
            "kind": _PLAIN[str],
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object", **_ANYTHING},
        },
    }
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.kind.lower()}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # the group belongs to Kubernetes' own community, which asks for a word about who approved a definition
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def pydantic_schema(kind: Any) -> Schema:
    """Of a type in a model that pydantic knows."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return pydantic_schema(args[0])
    if origin in (Union, UnionType):
        parts = [part for part in args if part is not NoneType]
        return pydantic_schema(parts[0]) if len(parts) == 1 else _ANYTHING
    if origin is list:
        return {"type": "array", "items": pydantic_schema(args[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": pydantic_schema(args[1])}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind.__name__.endswith(("Quantity", "IntOrString")):
            return _NUMBER_OR_TEXT
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        required = sorted(name for name, field in fields.items() if field.is_required())
        properties = {name: pydantic_schema(field.annotation) for name, field in fields.items()}
        return _object(properties, required)
    return _PLAIN.get(kind, _ANYTHING)


def generated_schema(kind: str, own: dict[str, Any]) -> Schema:
    """Of a type, by the name that the clients' generated models have for it; ``own``: types beside Kubernetes' own."""
    from kubernetes.client import models as kubernetes

    container = _CONTAINER.fullmatch(kind)
    if container:
        inner = generated_schema(container[2], own)
        return (
            {"type": "array", "items": inner}
            if container[1] == "list"
            else {
                "type": "object",
                "additionalProperties": inner,
            }
        )
    model = own.get(kind) or vars(kubernetes).get(kind)
    if model is None:
        return next((schema for plain, schema in _PLAIN.items() if plain.__name__ == kind), _ANYTHING)
    properties = {model.attribute_map[name]: generated_schema(each, own) for name, each in model.openapi_types.items()}
    return _object(properties, sorted(getattr(model, "required", ())))


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}
