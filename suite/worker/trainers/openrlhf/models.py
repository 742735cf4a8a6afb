"""The models that OpenRLHF loads from folders: drawn from shapes, with a tokenizer of numbers."""

import os
from typing import Any, Dict, Tuple

import torch

from suite.worker.trainers.drawn_model import critic_size, draw_model, write_tokenizer


def write_models(manifest: Dict[str, Any], folder: str) -> Tuple[str, str]:
    """Folders of the policy and of the critic: the policy's own, unless the workload has a critic of another shape."""
    size, seed = manifest["size"], manifest["measure"]["seed"]
    precision = torch.float32 if manifest["measure"]["precision"] == "fp32" else torch.bfloat16
    policy = _write(os.path.join(folder, "policy"), size, seed, precision)
    if manifest["workload"].get("critic") is None:
        return policy, policy
    return policy, _write(os.path.join(folder, "critic"), critic_size(manifest), seed + 1, precision)


def _write(folder: str, size: Dict[str, Any], seed: int, precision: torch.dtype) -> str:
    os.makedirs(folder)
    model = draw_model(size, seed, torch.device("cpu")).to(precision)
    model.save_pretrained(folder)
    write_tokenizer(folder, size["vocab"])
    return folder
