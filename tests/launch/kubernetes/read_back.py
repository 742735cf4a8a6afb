"""Rendered objects read as a cluster will read them, to hold them to their job."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from suite.launch.kubernetes.launcher import pod_templates
from suite.launch.kubernetes.pod import RANKS_VARIABLE

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
#: variables by which the variants give a pod its number
_NUMBERS = ("JOB_COMPLETION_INDEX", "RANK", "VC_TASK_INDEX")


class PodsOfRun(NamedTuple):
    """What the pods of a run do, see and may use."""

    image: str
    #: by node, as the process gets them; on a Ray cluster the one that starts the ranks of all nodes
    commands: tuple[tuple[str, ...], ...]
    env: dict[str, str]
    requests: dict[str, str]
    limits: dict[str, str]
    run_seconds: int


def as_pods(objects: list[dict[str, Any]]) -> PodsOfRun:
    """What the objects will do. Raises KeyError and ValueError where they are not those of a run."""
    nodes, template = _nodes(objects)
    spec, container = template["spec"], template["spec"]["containers"][0]
    env = {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}
    asked = container.get("resources", {"requests": {}, "limits": {}})
    command = _ray_commands(objects) or [
        [expanded(word, {**env, **dict.fromkeys(_NUMBERS, str(node))}) for word in container["command"]]
        for node in range(nodes)
    ]
    variables = {name: expanded(value, {}) for name, value in env.items()}
    ranks = json.loads(variables[RANKS_VARIABLE]) if RANKS_VARIABLE in variables else None
    return PodsOfRun(
        image=container["image"],
        commands=tuple(tuple(words) for words in command),
        env=variables,
        requests=asked["requests"],
        limits=asked["limits"],
        run_seconds=spec["activeDeadlineSeconds"] if ranks is None else ranks["limit_seconds"],
    )


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Text as the kubelet hands it on: ``$(NAME)`` replaced where there is such a variable, ``$$`` made one ``$``."""

    def value(match: re.Match[str]) -> str:
        return "$" if match.group() == "$$" else variables.get(match.group(1), match.group())

    return _REFERENCE.sub(value, text)


def _nodes(objects: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """How many nodes, and the template of all their pods, which must be one."""
    found = pod_templates(objects)
    first = found[0][1]
    nodes = [entry for entry in found if entry[1]["metadata"]["labels"]["suite/role"] != "submitter"]
    if any(template != first for _, template in nodes):
        raise ValueError("the nodes of a run are not alike")
    return sum(count for count, _ in nodes), first


def _ray_commands(objects: list[dict[str, Any]]) -> list[list[str]]:
    """The program of Ray's job, as a list of one; empty where there is no Ray cluster."""
    by_kind = {one["kind"]: one for one in objects}
    if "RayJob" in by_kind:
        return [shlex.split(by_kind["RayJob"]["spec"]["entrypoint"])]
    if "RayCluster" not in by_kind:
        return []
    script = by_kind["Job"]["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    words = shlex.split(expanded(script, {}))
    return [words[words.index("--") + 1 :]]
