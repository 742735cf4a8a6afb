"""The engines: one module per training stack, imported only when a manifest names it."""

import os
from typing import Any, Dict, Type

from suite.worker.engines.base import Engine
from suite.worker.world import World


def engine_class(name: str, device_type: str) -> Type[Engine]:
    """Import the stack of backend ``name``. Raises ValueError for a backend without an engine."""
    if name == "deepspeed":
        # Told, DeepSpeed does not look for an accelerator, and takes the CPU where a GPU is present too.
        os.environ.setdefault("DS_ACCELERATOR", device_type)
        # ZeRO imports DeepSpeed's Muon, whose torch.compile loads all of Inductor (2 s, 35 MB); nothing here compiles.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        from suite.worker.engines.deepspeed.engine import DeepSpeedEngine

        return DeepSpeedEngine
    if name == "megatron":
        from suite.worker.engines.megatron.engine import MegatronEngine

        return MegatronEngine
    raise ValueError("backend {!r} has no engine in this worker; known: deepspeed, megatron".format(name))


def build_engine(manifest: Dict[str, Any], world: World) -> Engine:
    """The engine that ``manifest["backend"]["name"]`` asks for, its model built and laid out on this rank.

    torch.distributed is initialised before. Raises ValueError for what the engine cannot do.
    """
    return engine_class(manifest["backend"]["name"], world.device.type)(manifest, world)
