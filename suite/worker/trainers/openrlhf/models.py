"""The models that OpenRLHF loads from folders: drawn from shapes, with a tokenizer of numbers."""

import os
from typing import Any, Dict, Tuple

import torch

from suite.worker.trainers.drawn_model import critic_size, write_model


def write_models(manifest: Dict[str, Any], folder: str) -> Tuple[str, str]:
    """Folders of the policy and of the critic: the policy's own, unless the workload has a critic of another shape."""
    seed = manifest["measure"]["seed"]
    precision = torch.float32 if manifest["measure"]["precision"] == "fp32" else torch.bfloat16
    policy, critic = os.path.join(folder, "policy"), os.path.join(folder, "critic")
    write_model(policy, manifest["size"], seed, precision)
    if manifest["workload"].get("critic") is None:
        return policy, policy
    write_model(critic, critic_size(manifest), seed + 1, precision)
    return policy, critic
