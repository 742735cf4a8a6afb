"""TRL's PPO trainer at the last release that has one, on torch's DDP or DeepSpeed's engine, under Accelerate."""

import os

from suite.worker.trainers.trl_ppo.config import check_version


def prepare(device_type: str) -> None:
    """Before TRL is imported. Raises ConfigError where it is another release."""
    os.environ.setdefault("DS_ACCELERATOR", device_type)
    # ZeRO imports DeepSpeed's Muon, whose torch.compile loads all of Inductor; nothing here compiles.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    check_version()
