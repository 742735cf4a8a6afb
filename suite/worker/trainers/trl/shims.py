"""What is replaced under TRL, to run on a CPU, and so that vLLM is given drawn weights instead of a folder's."""

import importlib
import importlib.util
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, Sequence, Set
from unittest import mock

from suite.worker.deepspeed_json import engine_of
from suite.worker.models import dtype_name
from suite.worker.trainers.iteration import after
from suite.worker.trainers.on_accelerate import is_deepspeed_on_cpu, without_shared_memory_operator
from suite.worker.vllm_common import SHARE_THAT_MUST_BE_FREE, blocks_for, cache_bytes, check_loaded, threads_kept


def without_vllm() -> ContextManager[Any]:
    """TRL imports vLLM wherever it is installed: seconds, and 200 MB that count as a rank's on a CPU."""
    find = importlib.util.find_spec
    return mock.patch("importlib.util.find_spec", lambda name, *more: None if name == "vllm" else find(name, *more))


def shims_on_cpu(manifest: Dict[str, Any]) -> Iterator[str]:
    """Replace what the engine needs on a CPU; a note for each."""
    if is_deepspeed_on_cpu(manifest):
        yield without_shared_memory_operator()  # before DeepSpeed's group is made, which would compile it
        if manifest["layout"]["zero_stage"] == 3:
            import deepspeed

            deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
            yield (
                "shim deepspeed-joins-gloo: DeepSpeed is told of the ranks before TRL's arguments are made, else "
                "ZeRO-3 partitions for a world of one"
            )
    elif manifest["measure"]["device"] == "cpu" and engine_of(manifest) == "fsdp2":
        from accelerate.state import AcceleratorState

        after(AcceleratorState, "__init__", _let_fsdp_be)
        yield (
            "shim fsdp-on-cpu: Accelerate takes DDP for FSDP on a CPU: AcceleratorState is told that its ranks shard"
        )


def _let_fsdp_be(_: None, state: Any, *__: Any, **options: Any) -> None:
    """Accelerate's ``state.py``, lines 986 to 1016: the type of ranks on a CPU is never looked at for FSDP."""
    from accelerate.state import DistributedType, PartialState

    plugin = options.get("fsdp_plugin")
    if plugin is not None and state.distributed_type == DistributedType.MULTI_CPU:
        if state._mixed_precision != "no":
            plugin.set_mixed_precision(state._mixed_precision)
        state.fsdp_plugin = plugin
        state.distributed_type = DistributedType.FSDP
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP


def build_with_drawn_weights(manifest: Dict[str, Any], lengths: Sequence[int], **arguments: Any) -> Any:
    """``LLM`` with more arguments, in its place in TRL's ``generation/vllm_generation.py``, line 347. The weights are
    whatever memory held until TRL hands over the policy's, before the first generation.

    ``lengths``: of this rank's responses.
    """
    from vllm import LLM

    arguments.update(load_format="dummy", skip_tokenizer_init=True, generation_config="vllm")
    precision, workload = manifest["measure"]["precision"], manifest["workload"]
    arguments["dtype"] = dtype_name(precision)
    is_cpu = manifest["measure"]["device"] == "cpu"
    if is_cpu:
        longest = workload["prompt_tokens"] + workload["new_tokens"]
        blocks = blocks_for([longest] * manifest["work"]["replica_rollouts"])
        arguments.update(
            enforce_eager=True,
            kv_cache_memory_bytes=cache_bytes(manifest["size"], precision, blocks),
            gpu_memory_utilization=SHARE_THAT_MUST_BE_FREE,
        )
    with threads_kept() if is_cpu else nullcontext():
        engine = LLM(**arguments)
    generate = engine.generate

    def generate_forced(prompts: Sequence[Any], sampling_params: Any, **options: Any) -> Any:
        own = [sampling_params.clone() for _ in lengths]
        for each, length in zip(own, lengths):
            each.max_tokens = length
        return generate(prompts, own, **options)

    engine.generate = generate_forced
    return engine


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
