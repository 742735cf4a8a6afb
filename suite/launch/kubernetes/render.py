"""From a job to the YAML of its objects: one template per variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from suite.launch.cluster.render import render_yaml
from suite.launch.job import Job
from suite.launch.kubernetes.pod import pod_values, reader_values
from suite.launch.kubernetes.settings import KubernetesSettings
from suite.spec.base import UsageError

#: Of a ConfigMap's values together; an API server refuses more.
_MOST_BYTES = 1 << 20


def render(
    job: Job, folder: str, settings: KubernetesSettings, files: Mapping[str, str], about: Mapping[str, str]
) -> str:
    """The YAML documents of a run, in the order in which a cluster should get them.

    ``folder``: the bundle as the ranks see it. ``files``: text files that the objects carry, the manifest among them.
    ``about``: annotations. Raises UsageError where the job cannot be what the settings ask for.
    """
    carried = sum(len(text.encode(errors="replace")) for text in files.values())
    if carried > _MOST_BYTES:
        raise UsageError(
            f"{job.name}: its manifest has {carried} bytes, and the ConfigMap that would carry it takes {_MOST_BYTES}: "
            "take fewer nodes or rollouts, or lengths that are not drawn; Slurm carries such runs"
        )
    values = pod_values(job, folder, settings, about)
    return render_yaml(f"kubernetes/{settings.variant}.yaml.j2", **values, files=dict(files))


def render_reader(job: Job, folder: str, settings: KubernetesSettings) -> dict[str, Any]:
    """The pod that prints what a run left on its claim."""
    return parse(render_yaml("kubernetes/reader.yaml.j2", **reader_values(job, folder, settings)))[0]


def parse(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered text."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
