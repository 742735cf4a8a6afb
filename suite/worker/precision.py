"""The types of a run's precision."""

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_name(precision: str) -> str:
    """As configuration files have it: ``bfloat16``."""
    return str(DTYPES[precision]).replace("torch.", "")
