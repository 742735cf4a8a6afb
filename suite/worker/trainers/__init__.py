"""The trainers: stacks that bring their own PPO iteration, imported only when a manifest names them."""

from typing import TYPE_CHECKING, Type

if TYPE_CHECKING:
    from suite.worker.trainers.base import Trainer

NAMES = ("trlx-deepspeed", "trlx-ddp", "trlx-nemo")


def trainer_class(name: str, device_type: str) -> "Type[Trainer]":
    """Import the stack of backend ``name``. Raises ValueError for a backend without a trainer."""
    if name in ("trlx-deepspeed", "trlx-ddp"):
        from suite.worker.trainers.trlx.accelerate.trainer import prepared_class

        return prepared_class(device_type)
    if name == "trlx-nemo":
        from suite.worker.trainers.trlx.nemo.trainer import prepared_class as prepared_nemo_class

        return prepared_nemo_class(device_type)
    raise ValueError("backend {!r} has no trainer in this worker; known: {}".format(name, ", ".join(NAMES)))
