"""One rank at full size without its memory: the engines build on the meta device, in groups that answer at once.

``python -m tests.worker.engines.at_size BACKEND MANIFESTS``: what the ranks of one replica hold of each manifest, one
of each pipeline stage, as JSON, or why the stack refuses to build it. Everything of models, sharding and optimizers is
the engine's and its stack's own. Replaced are random draws, what gives numbers back to the host, and how ZeRO-3
divides the larger models: DeepSpeed's own partitioner, on fake tensors, takes a fifth of a second for each layer.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.worker.engines.messages import Messages

Body = dict[str, Any]
META = torch.device("meta")
WEIGHT_BYTES = 2
#: Adam's two moments and the weights in fp32
STATE_BYTES = 3 * 4
#: ZeRO-3 keeps parameters of at most so many elements whole as well (DeepSpeed's ``param_persistence_threshold``)
STAYS_WHOLE = 1e5
#: Models with at most so many layers are divided by DeepSpeed itself.
MOST_LAYERS = 32
REFUSALS = (ValueError, AssertionError, RuntimeError, ZeroDivisionError)


class HostGenerator(torch.Generator):
    """No generator is on the meta device."""

    def __new__(cls, device: Any = None) -> Any:
        return super().__new__(cls)


def main(backend: str, manifests: Path) -> None:
    torch.set_num_threads(1)
    build = {"megatron": megatron, "deepspeed": deepspeed}[backend]()
    torch.Generator = HostGenerator  # type: ignore[misc]
    print(json.dumps({row: built(build, body) for row, body in json.loads(manifests.read_text()).items()}))


def built(build: Any, body: Body) -> list[Body] | str:
    try:
        return build(body)
    except REFUSALS as error:
        return f"refused: {error}"


@contextmanager
def world_of(rank: int, ranks: int, device: torch.device = META) -> Iterator[Any]:
    """This process as one of so many ranks, the others of which are not there."""
    from suite.worker.world import World

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield World(rank, ranks, 0, 1, device)
    finally:
        dist.destroy_process_group()


def elements(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# --- Megatron --------------------------------------------------------------------------------------------------------


def megatron() -> Any:
    """What builds a manifest's stages; afterwards this process is good for nothing else."""
    from suite.worker.engines import engine_class
    from suite.worker.engines.megatron import cpu, engine, stack, weights

    kind = engine_class("megatron", "cpu")
    named = torch.Tensor.type
    cpu.apply_cpu_patches()
    torch.cuda.current_device = lambda: META
    stack.mixed_precision_optimizer.get_grad_norm_fp32 = lambda *_, **__: 0.0
    torch.Tensor.type = lambda tensor, *given: named(tensor, *given) if given else type_on_cuda(tensor)
    dist.all_gather_object = all_alike
    engine.count_parameters = lambda model: dict(
        zip(("total", "trainable"), weights.own_parameters(model), strict=True)
    )

    def build(body: Body) -> list[Body]:
        stages = body["layout"]["pipeline"]
        ranks = body["layout"]["nodes"] * body["layout"]["devices_per_node"]
        return [stage_of(kind, body, stage * ranks // stages, ranks) for stage in range(stages)]

    return build


def type_on_cuda(tensor: torch.Tensor) -> str:
    names = {torch.float32: "Float", torch.bfloat16: "BFloat16", torch.float16: "Half"}
    return f"torch.cuda.{names[tensor.dtype]}Tensor"


def all_alike(gathered: list[Any], own: Any, group: Any = None) -> None:
    gathered[:] = [own] * len(gathered)


def stage_of(kind: Any, body: Body, rank: int, ranks: int) -> Body:
    from suite.worker.engines.megatron.stack import parallel_state

    with world_of(rank, ranks) as world:
        try:
            engine = kind(body, world)
            optimizers = getattr(engine._optimizer, "chained_optimizers", [engine._optimizer])
            is_plain = body["layout"]["pipeline"] == 1 and body["size"]["architecture"] == "gpt2"
            sent = sent_in_a_step(engine, optimizers, body) if is_plain else None
        finally:
            parallel_state.destroy_model_parallel()
    groups = [group for one in optimizers for group in one.optimizer.param_groups]
    buffers = engine._policy.buffers + engine._policy.expert_parallel_buffers
    attention = [layer.self_attention for layer in engine._model.decoder.layers]
    caches = [one._allocate_memory(1, 1, one.key_hidden_size, torch.bfloat16) for one in attention for _ in "kv"]
    return {
        "sent": sent,
        "total": engine.total_parameters,
        "weights": WEIGHT_BYTES * elements(engine._model),
        "reference": WEIGHT_BYTES * sum(map(elements, engine.models[1:])),
        "optimizer states": STATE_BYTES * sum(each.numel() for group in groups for each in group["params"]),
        "gradients": sum(buffer.grad_data.nbytes for buffer in buffers),
        "cache": sum(cache.nbytes for cache in caches),
    }


def sent_in_a_step(engine: Any, optimizers: list[Any], body: Body) -> dict[str, float]:
    """Bytes that this rank sends to tensor and to data parallel ranks in one optimizer step of even samples.

    One micro batch stands for all. Left out are the update itself, which sends nothing, and the norm of the gradient,
    which sends a number.
    """
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.samples import Samples

    engine._share_statistics = lambda _outputs: {}
    for one in optimizers:
        one.optimizer.step = lambda: None
        one.get_loss_scale = lambda: 1.0
    workload, work = body["workload"], body["work"]
    length = workload["prompt_tokens"] + workload["new_tokens"]
    tokens = torch.zeros(work["micro_batch"], length, dtype=torch.long, device=META)
    with Messages() as messages:
        engine.train(Samples.even(tokens, workload["prompt_tokens"]), {}, lambda logprobs, *_: (logprobs.sum(), {}))
    tensor = parallel_state.get_tensor_model_parallel_group().group_name
    data = parallel_state.get_data_parallel_group(with_context_parallel=True).group_name
    micro_batches = work["replica_batch"] // work["micro_batch"]
    return {"tensor": messages.bytes[tensor] * micro_batches, "data": messages.bytes[data]}


# --- DeepSpeed -------------------------------------------------------------------------------------------------------


def deepspeed() -> Any:
    """As ``megatron``, of rank 0. Where DeepSpeed does not divide itself, it is counted on the whole models that the
    engine hands to it."""
    import deepspeed as stack
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.utils import groups
    from transformers import masking_utils

    from suite.worker.engines import engine_class
    from suite.worker.engines.deepspeed import engine as engine_module
    from suite.worker.engines.deepspeed.policy import policy_builder

    kind, own = engine_class("deepspeed", "cpu"), (stack.initialize, stack.zero.Init)
    optimizers: list[Any] = []
    os.environ["LOCAL_RANK"] = "0"

    def initialize(model: Any, config: Body, optimizer: Any = None) -> list[Any]:
        DeepSpeedConfig(config)  # refuses what does not belong together
        optimizers.append(optimizer)
        return [model.to(torch.bfloat16)]

    get_accelerator().is_fp16_supported = lambda: True
    # it compiles, which the engine leaves out on a CPU alone
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    engine_module.draw_weights = lambda *_: None
    masking_utils.find_packed_sequence_indices = lambda _positions: None  # it reads numbers

    def build(body: Body) -> list[Body]:
        partitioned, ranks = body["layout"]["zero_stage"] == 3, body["layout"]["data"]
        optimizers.clear()
        with META:
            cache = cache_bytes(policy_builder(body["size"])().to(torch.bfloat16))
        if partitioned and body["size"]["layers"] <= MOST_LAYERS:
            groups._release_process_group_references()  # of the world before
            stack.initialize, stack.zero.Init = own
            with world_of(0, ranks, torch.device("cpu")) as world, FakeTensorMode():
                engine = kind(body, world)
                made = [one.optimizer for one in (engine._engine, engine._critic) if one]
                trained = [each for one in made for each in one.fp32_partitioned_groups_flat]
                return [held(engine, sum(each.numel() for each in trained), resting_bytes) | {"cache": cache}]
        stack.initialize, stack.zero.Init = initialize, lambda **_options: META
        with world_of(0, ranks) as world:
            engine = kind(body, world)
            trained = [each for one in optimizers if one for group in one.param_groups for each in group["params"]]
            weigh = partial(whole_bytes, ranks=ranks if partitioned else 1)
            return [held(engine, sum(-(-each.numel() // ranks) for each in trained), weigh) | {"cache": cache}]

    return build


@torch.no_grad()
def cache_bytes(policy: Any) -> int:
    """Keys and values of one position, in the cache that Hugging Face's model makes."""
    cache = policy.eval()(torch.zeros(1, 1, dtype=torch.long, device=META), use_cache=True).past_key_values
    return sum(tensor.nbytes for layer in cache.layers for tensor in (layer.keys, layer.values))


def held(engine: Any, trained: int, weigh: Callable[[Any], int]) -> Body:
    """Bytes of one rank, with so many elements in its optimizers."""

    def bytes_of(*models: Any) -> int:
        return sum(weigh(parameter) for model in models if model is not None for parameter in model.parameters())

    return {
        "total": engine.total_parameters,
        "weights": bytes_of(engine._policy, engine._critic),
        "reference": bytes_of(engine._reference),
        "optimizer states": STATE_BYTES * trained,
    }


def whole_bytes(parameter: Any, ranks: int) -> int:
    """By the rule that ``resting_bytes`` follows, of a tensor that nobody divided."""
    size = parameter.numel()
    return WEIGHT_BYTES * (-(-size // ranks) + (size if ranks > 1 and size <= STAYS_WHOLE else 0))


def resting_bytes(parameter: Any) -> int:
    """This rank's part, and the whole of a parameter that stays so."""
    return parameter.ds_tensor.nbytes + parameter.ds_persist * parameter.ds_numel * parameter.ds_tensor.element_size()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
