"""The phases of an iteration as ``phases.json`` declares them, for the driver and the worker alike."""

import json
import os

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "phases.json")

with open(_FILE, encoding="utf-8") as _declared:
    #: What a rank may time, in the order of an iteration.
    NAMES = tuple(phase["name"] for phase in json.load(_declared)["phases"])


def check_phase(name: str) -> None:
    """Raise ValueError for a phase that is not declared: no reader of its events would know it."""
    if name not in NAMES:
        raise ValueError("phase {!r} is not declared in suite/worker/phases.json ({})".format(name, ", ".join(NAMES)))
