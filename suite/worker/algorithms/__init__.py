"""Algorithms: what is learned from finished samples. One file each, which declares it for the driver too."""

import importlib
import os
from typing import Any, Dict

from suite.worker.algorithms.base import Algorithm

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_NO_ALGORITHMS = ("__init__", "base")


def build_algorithm(workload: Dict[str, Any]) -> Algorithm:
    """The algorithm of a manifest's workload; PPO where it names none."""
    asked = workload.get("algorithm") or {"name": "ppo", "options": {}}
    files = (os.path.splitext(file) for file in sorted(os.listdir(_FOLDER)))
    names = [name for name, extension in files if extension == ".py" and name not in _NO_ALGORITHMS]
    modules = (importlib.import_module("suite.worker.algorithms." + name) for name in names)
    module: Any = next(each for each in modules if each.DECLARATION["name"] == asked["name"])
    return module.build(workload, dict(asked["options"]))
