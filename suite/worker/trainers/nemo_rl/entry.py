"""``python -m suite.worker.trainers.nemo_rl.entry FILE``: NeMo-RL's GRPO example as it is, and what its logger logs.

In NeMo-RL's image. Its registries get the suite's environment and processor; each call of its logger is written to the
step log as well.
"""

import json
import math
import os
import runpy
import sys
from functools import wraps
from typing import Any, Callable, Dict, List, Mapping, Optional

from suite.worker.trainers.nemo_rl.configuration import REGISTERED

#: The file of the step log.
LOG_VARIABLE = "SUITE_STEP_LOG"
ENVIRONMENT = "suite.worker.trainers.nemo_rl.data.NumberedEnvironment"
#: what the logger is given of a step and is read, in the order of grpo.py; the last one comes with ``step_finished``
PREFIXES = ("train", "timing/train")


def source_folder() -> str:
    """Where NeMo-RL's sources lie: the folder that holds the package and its examples."""
    import nemo_rl

    return os.path.dirname(os.path.dirname(os.path.abspath(nemo_rl.__file__)))


def told(log_metrics: Callable[..., Any], path: str) -> Callable[..., Any]:
    """``Logger.log_metrics``, which first adds a line to the step log for each step that is complete: its numbers as
    ``prefix/name``, null where one is not finite."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    values: Dict[str, Optional[float]] = {}

    @wraps(log_metrics)
    def log(self: Any, metrics: Mapping[str, Any], step: int, prefix: str = "", *rest: Any, **options: Any) -> Any:
        for name, value in metrics.items() if prefix in PREFIXES else ():
            if getattr(value, "shape", None) == ():  # a scalar of numpy or torch
                value = value.item()
            if isinstance(value, (int, float)):
                values["{}/{}".format(prefix, name)] = value if math.isfinite(value) else None
        if options.get("step_finished"):
            line = json.dumps({"step": step, "values": values}, allow_nan=False)
            os.write(descriptor, line.encode() + b"\n")
            values.clear()
        return log_metrics(self, metrics, step, prefix, *rest, **options)

    return log


def main(arguments: List[str]) -> None:
    from nemo_rl.data.processors import register_processor
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import register_env
    from nemo_rl.utils.logger import Logger

    from suite.worker.trainers.nemo_rl.data import as_datum

    register_env(REGISTERED, ENVIRONMENT)
    ACTOR_ENVIRONMENT_REGISTRY[ENVIRONMENT] = PY_EXECUTABLES.SYSTEM
    register_processor(REGISTERED, as_datum)
    Logger.log_metrics = told(Logger.log_metrics, os.environ[LOG_VARIABLE])
    script = os.path.join(source_folder(), "examples", "run_grpo.py")
    sys.argv = [script, "--config", arguments[0]]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
