"""trlx's PPO trainer on NeMo-Megatron."""

from suite.worker.trainers.trlx.source import use_trlx


def prepare(device_type: str) -> None:
    """Find trlx and import its NeMo trainer.

    trlx hides every ImportError of NeMo, apex or Lightning behind a sentence of its own; importing the module itself
    lets the real one through. Raises ConfigError where trlx is not the measured commit.
    """
    use_trlx()
    import trlx.trainer.nemo_ppo_trainer  # noqa: F401
