"""The DeepSpeed engine; its modules import torch, DeepSpeed and transformers."""

import os


def prepare(device_type: str) -> None:
    # Where this is set, DeepSpeed does not look for an accelerator, and takes the CPU also where a GPU is present.
    os.environ.setdefault("DS_ACCELERATOR", device_type)
    # ZeRO imports DeepSpeed's Muon, whose torch.compile loads all of Inductor (2 s, 35 MB); nothing here compiles.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
