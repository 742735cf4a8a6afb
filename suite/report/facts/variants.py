"""What tells two rows apart that a table would show alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suite.spec.manifest import Manifest

_SHOWN_ANYWAY = ("schema", "run", "hash", "work_hash", "note", "source", "global_rollouts")
_MOST_DIFFERENCES = 3


def variants(manifests: Sequence[tuple[str, Manifest, Mapping[str, str]]]) -> list[str]:
    """For each (machine, manifest, launch) the settings that set it apart from rows that look the same.

    Empty for most. ``launch``: settings beyond the manifest, by name.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for index, (machine, manifest, _) in enumerate(manifests):
        alike[_appearance(machine, manifest)].append(index)
    names = [""] * len(manifests)
    for indices in alike.values():
        if len(indices) > 1:
            flat = [_settings(*manifests[index][1:]) for index in indices]
            keys = sorted({key for one in flat for key in one})
            differing = [key for key in keys if len({repr(one.get(key)) for one in flat}) > 1]
            for index, one in zip(indices, flat, strict=True):
                names[index] = _name(differing, one)
    return names


def _settings(manifest: Manifest, launch: Mapping[str, str]) -> dict[str, Any]:
    return {**dict(_flatten(manifest.model_dump(mode="json", by_alias=True))), **launch}


def _appearance(machine: str, manifest: Manifest) -> tuple:
    measure, workload = manifest.measure, manifest.workload
    return (
        (machine, manifest.size.name, manifest.layout.ranks, manifest.layout.nodes, manifest.layout.label()),
        (manifest.backend.name, manifest.backend.kind, workload.name, workload.scaling, manifest.track),
        (measure.device, measure.precision, measure.threads_per_rank),
    )


def _name(differing: Sequence[str], values: dict[str, Any]) -> str:
    parts = [f"{key.split('.', 1)[-1]}={values.get(key)}" for key in differing]
    rest = len(parts) - _MOST_DIFFERENCES
    return " ".join(parts[:_MOST_DIFFERENCES] + ([f"and {rest} more"] if rest > 0 else []))


def _flatten(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if key in _SHOWN_ANYWAY:
            continue
        if isinstance(part, dict):
            yield from _flatten(part, f"{prefix}{key}.")
        else:
            yield prefix + key, part
