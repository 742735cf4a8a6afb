"""``python -m suite.worker.trainers.nemo_rl.entry FILE``: NeMo-RL's GRPO example as it is, and what its logger logs.

In NeMo-RL's image. Its registries get the suite's environment and processor; each call of its logger is written to the
step log as well.
"""

import os
import runpy
import sys
from functools import wraps
from typing import Any, Callable, List, Mapping

from suite.worker.trainers.nemo_rl.configuration import REGISTERED
from suite.worker.trainers.nemo_rl.logged import LOG_VARIABLE, StepSink

ENVIRONMENT = "suite.worker.trainers.nemo_rl.data.NumberedEnvironment"
#: what the logger is given of a step, in the order of grpo.py; the last one comes with ``step_finished``
PREFIXES = ("train", "performance", "timing/train")


def source_folder() -> str:
    """Where NeMo-RL's sources lie: the folder that holds the package and its examples."""
    import nemo_rl

    return os.path.dirname(os.path.dirname(os.path.abspath(nemo_rl.__file__)))


def told(log_metrics: Callable[..., Any], sink: StepSink) -> Callable[..., Any]:
    """``Logger.log_metrics``, which writes what it is given of a step to the sink first."""

    @wraps(log_metrics)
    def log(self: Any, metrics: Mapping[str, Any], step: int, prefix: str = "", *rest: Any, **options: Any) -> Any:
        if prefix in PREFIXES:
            sink.log(metrics, step, prefix, finished=bool(options.get("step_finished", False)))
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
    Logger.log_metrics = told(Logger.log_metrics, StepSink(os.environ[LOG_VARIABLE]))
    script = os.path.join(source_folder(), "examples", "run_grpo.py")
    sys.argv = [script, "--config", arguments[0]]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
