"""TRL's own GRPO and RLOO trainers; its modules import torch, transformers, Accelerate and TRL."""

import os


def prepare(device_type: str) -> None:
    os.environ.setdefault("DS_ACCELERATOR", device_type)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if device_type == "cpu":
        # nothing that runs on a CPU is compiled, and loading Inductor takes seconds
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
