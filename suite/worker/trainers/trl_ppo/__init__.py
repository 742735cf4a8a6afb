"""TRL's PPO trainer at the last release that has one, on torch's DDP or DeepSpeed's engine, under Accelerate."""

import os

from suite.worker.engines import deepspeed


def prepare(device_type: str) -> None:
    deepspeed.prepare(device_type)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
