"""Which of the variables that a user gives to the ranks are part of what is measured."""

from __future__ import annotations

from collections.abc import Mapping

from suite.launch.idle import REQUIRE_IDLE
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.redaction import public_variables

#: variable -> the option that sets what the manifest says of it
_OPTIONS = {"OMP_NUM_THREADS": "--threads", "CUDA_VISIBLE_DEVICES": "--gpu-ids", "NVIDIA_VISIBLE_DEVICES": "--gpu-ids"}


def measured_with(given: Mapping[str, str]) -> dict[str, str]:
    """Those that identify a run, by name. A secret changes no measurement, and a manifest is meant to be published.

    Raises UsageError for one that an option sets: the manifest would say another thing.
    """
    for name in given:
        if name in _OPTIONS:
            raise UsageError(f"--env {name}: give it by {_OPTIONS[name]}, which the manifest and the plan know of")
    public = public_variables(given)
    return {name: public[name] for name in sorted(public) if name not in REQUIRE_IDLE}


def require_same_variables(manifest: Manifest, found: Mapping[str, str]) -> None:
    """Raises UsageError where the ranks would get other variables than the manifest was measured with.

    They are not taken from the manifest: variables can make a program load whatever its author likes.
    """
    wanted = manifest.measure.variables
    missing = [f"--env {name}={value}" for name, value in wanted.items() if found.get(name) != value]
    more = [f"--env {name}" for name in found if name not in wanted]
    if missing:
        raise UsageError(f"the manifest was measured with variables that its ranks need again: {' '.join(missing)}")
    if more:
        raise UsageError(
            f"the manifest was measured without {', '.join(more)}: leave it out, or measure with suite run"
        )
