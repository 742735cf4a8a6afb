"""The engines: one module per training stack, imported only when a manifest names it."""

from typing import Any, Dict

from suite.worker.engines.base import Engine
from suite.worker.world import World


def build_engine(manifest: Dict[str, Any], world: World) -> Engine:
    """The engine that ``manifest["backend"]["name"]`` asks for, its model built and laid out on this rank.

    torch.distributed is initialised before. Raises ValueError for a backend without an engine.
    """
    name = manifest["backend"]["name"]
    if name == "deepspeed":
        from suite.worker.engines.deepspeed_engine import DeepSpeedEngine

        return DeepSpeedEngine(manifest, world)
    if name == "megatron":
        from suite.worker.engines.megatron_engine import MegatronEngine

        return MegatronEngine(manifest, world)
    raise ValueError("backend {!r} has no engine in this worker; known: deepspeed, megatron".format(name))
