"""TRL's PPO trainer at the last release that has one, on torch's DDP or DeepSpeed's engine, under Accelerate."""

import os


def prepare(device_type: str) -> None:
    """Before TRL is imported."""
    os.environ.setdefault("DS_ACCELERATOR", device_type)
    # ZeRO imports DeepSpeed's Muon, whose torch.compile loads all of Inductor; nothing here compiles.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
