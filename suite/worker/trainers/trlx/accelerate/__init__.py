"""trlx's PPO trainer on Accelerate: DeepSpeed's engine or torch's DDP."""

from suite.worker.engines import deepspeed
from suite.worker.trainers.trlx.source import use_trlx


def prepare(device_type: str) -> None:
    """Find trlx and have it register its trainers. Raises ConfigError where trlx is not the measured commit."""
    deepspeed.prepare(device_type)
    use_trlx()
    import trlx.utils.loading  # noqa: F401 - registers trlx's trainers and pipelines
