"""Algorithms: what is learned from finished samples. One file each, which declares it for the driver too."""

import importlib
import pkgutil
from typing import Any, Dict

from suite.worker.algorithms.base import Algorithm


def build_algorithm(workload: Dict[str, Any]) -> Algorithm:
    """The algorithm of a manifest's workload; PPO where it names none."""
    asked = workload.get("algorithm") or {"name": "ppo", "options": {}}
    modules = (importlib.import_module(__name__ + "." + each.name) for each in pkgutil.iter_modules(__path__))
    module: Any = next(each for each in modules if getattr(each, "DECLARATION", {}).get("name") == asked["name"])
    return module.build(workload, dict(asked["options"]))
