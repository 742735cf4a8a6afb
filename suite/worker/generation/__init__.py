"""Generation engines beside the training engine: vLLM, given the policy's weights in every iteration."""

from typing import Any, Callable, Dict, Optional

from suite.worker.engines.base import Engine
from suite.worker.events import Progress
from suite.worker.generation.base import Generator
from suite.worker.world import World

#: ``make(manifest, world, engine, progress)`` on every rank at the same time, once the training engine is there
MakeGenerator = Callable[[Dict[str, Any], World, Engine, Progress], Generator]


def find_generator(manifest: Dict[str, Any]) -> Optional[MakeGenerator]:
    """Import the generation engine that the layout names; None where the training stack generates itself.

    Raises ConfigError for one that is not there, or that cannot do what the manifest asks for.
    """
    if manifest["layout"].get("generation", "hf") != "vllm":
        return None
    from suite.worker.generation.vllm import VllmGenerator, prepare

    prepare(manifest)
    return VllmGenerator
