"""A manifest once more, on a cluster: further runs of its row, as `suite rerun` makes them on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suite.conduct.cluster.machine import ClusterMachine
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.variables import require_same_variables
from suite.conduct.running.rerun import rerun_plan
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest


def plan_again(manifest: Manifest, root: Path, runs: int, machine: ClusterMachine) -> Plan:
    """So many runs of a manifest on such nodes, beside those under ``root``.

    Raises UsageError where it would be another measurement, as far as that is known from here: every rank compares its
    stack with the manifest's.
    """
    name = manifest.backend.name
    require_same_variables(manifest, machine.variables)
    known = machine.found_stacks([name])[name]
    other = [
        f"{package} {version} (here {known[package]})"
        for package, version in manifest.stack.items()
        if known.get(package, version) != version
    ]
    if other:
        raise UsageError(
            f"the manifest was measured with {', '.join(other)}: name an image or an interpreter with that stack, and "
            "its versions with --stack where nothing here tells them"
        )
    machine.require_generation([manifest])
    return rerun_plan(manifest, root, runs, machine.images([name])[name], manner=machine.manner)


def require_layout(manifest: Manifest, nodes: Sequence[int], devices_per_node: int | None) -> None:
    """Raises UsageError for other numbers than the manifest's."""
    layout = manifest.layout
    for option, given, own in (
        ("--nodes", nodes, layout.nodes),
        ("--gpus-per-node", () if devices_per_node is None else (devices_per_node,), layout.devices_per_node),
    ):
        for count in given:
            if count != own:
                raise UsageError(f"{option} {count}: the manifest has {own}; leave it out")
