"""``python -m suite.worker.trainers.skyrl.entry FILE``: SkyRL's trainer as ``main_base`` runs it, with a callback.

In SkyRL's image. ``main_base`` leaves two things to its user: to register an environment within Ray's task, and to
give the trainer callbacks; this does both, and nothing else than ``main_base`` does.
"""

import json
import os
import sys
from importlib import metadata
from typing import Any, Dict, List

from suite.worker.trainers.logged.inputs import MANIFEST_VARIABLE
from suite.worker.trainers.logged.sink import LOG_VARIABLE, sink_from_environment
from suite.worker.trainers.skyrl.callback import StepTeller
from suite.worker.trainers.skyrl.configuration import ENVIRONMENT

NAME = "skyrl"
ENTRY_POINT = "suite.worker.trainers.skyrl.environment:NumberedEnvironment"
#: what Ray's task needs to know of this run
_VARIABLES = (LOG_VARIABLE, MANIFEST_VARIABLE)


def run(cfg: Any, variables: Dict[str, str]) -> None:
    """In Ray's task: everything from the engines to the last step."""
    os.environ.update(variables)
    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl_gym.envs import register

    register(id=ENVIRONMENT, entry_point=ENTRY_POINT)
    sink = sink_from_environment(NAME, metadata.version("skyrl"))

    class Experiment(BasePPOExp):  # type: ignore[misc]
        def get_trainer(self, *arguments: Any, **options: Any) -> Any:
            trainer = super().get_trainer(*arguments, **options)
            trainer.add_callback(StepTeller(sink))
            return trainer

    Experiment(cfg).run()


def main(arguments: List[str]) -> None:
    import ray
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray

    with open(arguments[0], encoding="utf-8") as file:
        cfg = SkyRLTrainConfig.from_cli_overrides(json.load(file))
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(ray.remote(num_cpus=1)(run).remote(cfg, {name: os.environ[name] for name in _VARIABLES}))


if __name__ == "__main__":
    main(sys.argv[1:])
