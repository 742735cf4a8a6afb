"""vLLM as TRL builds it in each rank's process, but for what a model without a folder of weights needs."""

from contextlib import nullcontext
from typing import Any, Callable, Dict, Sequence, Set

from suite.worker.precision import dtype_name
from suite.worker.trainers.iteration import after
from suite.worker.vllm_common import SHARE_THAT_MUST_BE_FREE, blocks_for, cache_bytes, check_loaded, threads_kept
from suite.worker.world import World


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
