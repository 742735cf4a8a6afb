"""``python -m tests.worker.trainers.logged.real_classes NAME MANIFEST``: a trainer's own classes read what is written.

In an interpreter that has the trainer. Exits with 1 and the trainer's own words where they refuse it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def skyrl(manifest: dict[str, Any], folder: str) -> None:
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils.utils import validate_cfg

    from suite.worker.trainers.skyrl.configuration import configuration

    validate_cfg(SkyRLTrainConfig.from_cli_overrides(configuration(manifest, folder)))


def areal(manifest: dict[str, Any], folder: str) -> None:
    from areal.api.alloc_mode import ModelAllocation
    from areal.api.cli_args import GRPOConfig, parse_cli_args, to_structured_cfg
    from omegaconf import OmegaConf

    from suite.worker.trainers.areal.configuration import configuration

    path = os.path.join(folder, "config.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(configuration(manifest, folder), file)
    raw, _ = parse_cli_args(["--config", path])
    config = OmegaConf.to_object(to_structured_cfg(raw, config_cls=GRPOConfig))
    for role in ("actor", "rollout"):
        ModelAllocation.from_str(getattr(config, role).backend, name=role)


def nemo_rl(manifest: dict[str, Any], folder: str) -> None:
    from nemo_rl.algorithms.grpo import MasterConfig
    from nemo_rl.utils.config import load_config, register_omegaconf_resolvers
    from omegaconf import OmegaConf

    from suite.worker.trainers.nemo_rl.configuration import configuration
    from suite.worker.trainers.nemo_rl.entry import source_folder

    base = os.path.join(source_folder(), "examples", "configs", "grpo_math_1B.yaml")
    path = os.path.join(folder, "config.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(configuration(manifest, folder, base), file)
    register_omegaconf_resolvers()
    config = MasterConfig(**OmegaConf.to_container(load_config(path), resolve=True))
    assert config.policy["generation"]["ignore_eos"] is True, "its own classes drop what forces the lengths"


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as given:
        body = json.load(given)
    {"skyrl": skyrl, "areal": areal, "nemo-rl": nemo_rl}[sys.argv[1]](
        body, os.path.dirname(os.path.abspath(sys.argv[2]))
    )
