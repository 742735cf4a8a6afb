"""What is replaced under TRL, to run on a CPU, and so that vLLM is given drawn weights instead of a folder's."""

import importlib
import importlib.util
from contextlib import contextmanager
from typing import Any, Iterator
from unittest import mock

from suite.worker.deepspeed_json import engine_of
from suite.worker.trainers.iteration import after
from suite.worker.trainers.shims import NO_SHARED_MEMORY_OPERATOR, Shim, is_deepspeed_on_cpu


@contextmanager
def without_vllm() -> Iterator[None]:
    """TRL imports vLLM wherever it is installed: seconds, and 200 MB that count as a rank's on a CPU."""
    find = importlib.util.find_spec

    def find_others(name: str, *arguments: Any) -> Any:
        return None if name == "vllm" else find(name, *arguments)

    with mock.patch("importlib.util.find_spec", find_others):
        yield


def _join_deepspeed() -> None:
    import deepspeed

    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)


def _let_fsdp_be() -> None:
    """Accelerate's ``state.py``, lines 986 to 1016: the type of ranks on a CPU is never looked at for FSDP."""
    from accelerate.state import AcceleratorState, DistributedType, PartialState

    def take_plugin(_: None, state: Any, *__: Any, **options: Any) -> None:
        plugin = options.get("fsdp_plugin")
        if plugin is not None and state.distributed_type == DistributedType.MULTI_CPU:
            if state._mixed_precision != "no":
                plugin.set_mixed_precision(state._mixed_precision)
            state.fsdp_plugin = plugin
            state.distributed_type = DistributedType.FSDP
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    after(AcceleratorState, "__init__", take_plugin)


SHIMS = (
    NO_SHARED_MEMORY_OPERATOR,  # before DeepSpeed's group is made, which would compile it
    Shim(
        "deepspeed-joins-gloo",
        "DeepSpeed is told of the ranks before TRL's arguments are made, else ZeRO-3 partitions for a world of one",
        lambda manifest, world: is_deepspeed_on_cpu(manifest, world) and manifest["layout"]["zero_stage"] == 3,
        _join_deepspeed,
    ),
    Shim(
        "fsdp-on-cpu",
        "Accelerate takes DDP for FSDP on a CPU: AcceleratorState is told that its ranks shard",
        lambda manifest, world: world.device.type == "cpu" and engine_of(manifest) == "fsdp2",
        _let_fsdp_be,
    ),
)
