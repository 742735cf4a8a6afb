"""One rank at full size without its memory: Megatron builds on the meta device, in groups that answer at once.

``python -m tests.worker.engines.at_size MANIFESTS``: what the ranks of one replica hold of each manifest, one of each
pipeline stage, as JSON. Replaced are random draws and what gives numbers to the host; the rest is the engine's own.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.worker.engines.messages import Messages

Body = dict[str, Any]
META = torch.device("meta")
WEIGHT_BYTES = 2
#: Adam's two moments and the weights in fp32
STATE_BYTES = 3 * 4


class HostGenerator(torch.Generator):
    """No generator is on the meta device."""

    def __new__(cls, device: Any = None) -> Any:
        return super().__new__(cls)


def main(manifests: Path) -> None:
    torch.set_num_threads(1)
    build = megatron()
    torch.Generator = HostGenerator  # type: ignore[misc]
    print(json.dumps({row: build(body) for row, body in json.loads(manifests.read_text()).items()}))


@contextmanager
def world_of(rank: int, ranks: int) -> Iterator[Any]:
    """This process as one of so many ranks, the others of which are not there."""
    from suite.worker.world import World

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield World(rank, ranks, 0, 1, META)
    finally:
        dist.destroy_process_group()


def elements(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def megatron() -> Any:
    """What builds a manifest's stages; afterwards this process is good for nothing else."""
    from suite.worker.engines.megatron import cpu, engine, stack, weights
    from suite.worker.registry import engine_class

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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
