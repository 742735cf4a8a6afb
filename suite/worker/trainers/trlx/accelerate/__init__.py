"""trlx's PPO trainer on Accelerate: DeepSpeed's engine or torch's DDP."""

import os

from suite.worker.trainers.trlx.source import use_trlx


def prepare(device_type: str) -> None:
    """Find trlx and have it register its trainers. Raises ConfigError where trlx is not the measured commit."""
    os.environ.setdefault("DS_ACCELERATOR", device_type)
    # ZeRO imports DeepSpeed's Muon, whose torch.compile loads all of Inductor; nothing here compiles.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    use_trlx()
    import trlx.utils.loading  # noqa: F401 - registers trlx's trainers and pipelines
