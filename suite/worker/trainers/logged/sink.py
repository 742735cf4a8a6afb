"""The trainer's side of a step log: what the trainer logs, written as lines too, where the leading rank reads them.

Imported in the trainer's own process, so it needs nothing but the standard library.
"""

import json
import math
import os
import time
from typing import Any, Dict, Mapping, Optional

#: The file, for a process that the leading rank has started.
LOG_VARIABLE = "SUITE_STEP_LOG"
STEP_LOG_SCHEMA = "suite/steplog/1"


class StepSink:
    """Appends to the step log, a whole line at once; each says when, by a clock that cannot be set."""

    def __init__(self, path: str, trainer: str, version: Optional[str]) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._write({"kind": "start", "schema": STEP_LOG_SCHEMA, "trainer": trainer, "version": version})

    def begin(self) -> None:
        """The trainer's loop starts now: everything before was set-up."""
        self._write({"kind": "begin"})

    def log(self, values: Mapping[str, Any], step: int, prefix: str = "", finished: bool = True) -> None:
        """What the trainer logs of ``step``; ``finished``: nothing more of that step follows.

        Numbers alone are kept, under ``prefix/name``; what is not finite is null.
        """
        told: Dict[str, Optional[float]] = {}
        for name, value in values.items():
            number = _number(value)
            if number is not None:
                key = "{}/{}".format(prefix, name) if prefix else str(name)
                told[key] = number if math.isfinite(number) else None
        self._write({"kind": "step", "step": int(step), "finished": bool(finished), "values": told})

    def _write(self, line: Dict[str, Any]) -> None:
        line["clock"] = time.monotonic()
        os.write(self._descriptor, json.dumps(line, allow_nan=False).encode() + b"\n")


def sink_from_environment(trainer: str, version: Optional[str]) -> StepSink:
    """The sink of a process that was started for a run. Raises RuntimeError in any other."""
    path = os.environ.get(LOG_VARIABLE)
    if not path:
        raise RuntimeError("{} is not set: this program is started by a run of the suite".format(LOG_VARIABLE))
    return StepSink(path, trainer, version)


def _number(value: Any) -> Any:
    """An int or a float, also out of a scalar of numpy or torch; None for anything else."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, (int, float)):
        if getattr(value, "shape", None) != () or not hasattr(value, "item"):
            return None
        value = value.item()
    return value if isinstance(value, (int, float)) else None
