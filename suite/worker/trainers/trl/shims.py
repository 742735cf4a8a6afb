"""What is replaced under TRL, to run on a CPU, and so that vLLM is given drawn weights instead of a folder's."""

import importlib
import importlib.util
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, Sequence, Set
from unittest import mock

from suite.worker.deepspeed_json import engine_of
from suite.worker.models import dtype_name
from suite.worker.trainers.iteration import after
from suite.worker.trainers.on_accelerate import NO_SHARED_MEMORY_OPERATOR, Shim, is_deepspeed_on_cpu
from suite.worker.vllm_common import SHARE_THAT_MUST_BE_FREE, blocks_for, cache_bytes, check_loaded, threads_kept
from suite.worker.world import World


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


def build_with_drawn_weights(manifest: Dict[str, Any], world: World, lengths: Sequence[int]) -> Any:
    """What stands in the place of ``LLM`` in TRL's ``generation/vllm_generation.py``, line 347: the same with more
    arguments. The weights are whatever memory held until TRL hands over the policy's, before the first generation.

    ``lengths``: of this rank's responses.
    """
    from vllm import LLM

    more: Dict[str, Any] = {"load_format": "dummy", "skip_tokenizer_init": True, "generation_config": "vllm"}
    precision, workload = manifest["measure"]["precision"], manifest["workload"]
    more["dtype"] = dtype_name(precision)
    if world.device.type == "cpu":
        longest = workload["prompt_tokens"] + workload["new_tokens"]
        blocks = blocks_for([longest] * manifest["work"]["replica_rollouts"])
        more.update(
            enforce_eager=True,
            kv_cache_memory_bytes=cache_bytes(manifest["size"], precision, blocks),
            gpu_memory_utilization=SHARE_THAT_MUST_BE_FREE,
        )

    def build(**arguments: Any) -> Any:
        with threads_kept() if world.device.type == "cpu" else nullcontext():
            engine = LLM(**{**arguments, **more})
        generate = engine.generate

        def generate_forced(prompts: Sequence[Any], sampling_params: Any, **options: Any) -> Any:
            own = [sampling_params.clone() for _ in lengths]
            for each, length in zip(own, lengths):
                each.max_tokens = length
            return generate(prompts, own, **options)

        engine.generate = generate_forced
        return engine

    return build


def checked_once(generation: Any) -> Callable[[], None]:
    """TRL's ``sync_weights``, which the first time raises ConfigError where a weight of vLLM's model got none of the
    policy's."""
    sync = generation.sync_weights
    model = generation.llm.llm_engine.model_executor.driver_worker.model_runner.model
    loaded: Set[str] = set()
    after(model, "load_weights", lambda names, *_, **__: loaded.update(names))

    def sync_and_check() -> None:
        sync()
        if "load_weights" in vars(model):
            del model.load_weights
            check_loaded(model, loaded, "TRL")

    return sync_and_check
