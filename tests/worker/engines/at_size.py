"""One rank at full size without its memory: Megatron builds on the meta device, in groups that answer at once.

``python -m tests.worker.engines.at_size MANIFESTS``: what the ranks of one replica hold of each manifest, one of each
pipeline stage, and send in a step, as JSON. Replaced are random draws, what gives numbers to the host, and what depends
on them: all samples are even, and all experts are chosen alike often.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.fx.experimental._config as symbolic
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
    from suite.worker.registry import backend_class

    kind = backend_class("megatron", "cpu")
    named = torch.Tensor.type
    cpu.apply_cpu_patches()
    torch.cuda.current_device = lambda: META
    stack.mixed_precision_optimizer.get_grad_norm_fp32 = lambda *_, **__: 0.0
    torch.Tensor.type = lambda tensor, *given: named(tensor, *given) if given else type_on_cuda(tensor)
    dist.all_gather_object = all_alike
    symbolic.meta_nonzero_assume_all_nonzero = True  # of masks of real tokens, of which even samples are all
    sys.modules[stack.MoEAlltoAllTokenDispatcher.__module__].permute = permute_alike
    stack.MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = route_alike
    engine.count_parameters = weights.own_parameters

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


def permute_alike(tokens: Any, routing_map: Any, probs: Any, num_out_tokens: int, **_: Any) -> tuple[Any, Any, Any]:
    """As Megatron's ``permute``, of which nobody knows which rows it takes."""
    rows = torch.empty(num_out_tokens, dtype=torch.long, device=META)
    return tokens.index_select(0, rows), probs.flatten()[:num_out_tokens], rows


def route_alike(dispatcher: Any, point: str, tokens_per_expert: Any = None) -> Any:
    """The same number of tokens from each rank to each expert, in the place of what the host would read."""
    if point != dispatcher.cuda_dtoh_point:
        return tokens_per_expert
    each, left = divmod(dispatcher.num_out_tokens, dispatcher.num_experts)
    assert not left, "tokens divide over the experts"
    held, ranks = dispatcher.num_local_experts, dispatcher.ep_size
    dispatcher.input_splits = dispatcher.output_splits = [each * held] * ranks
    dispatcher.num_global_tokens_per_local_expert = torch.full((ranks, held), each)
    return torch.full((held,), each * ranks)


def stage_of(kind: Any, body: Body, rank: int, ranks: int) -> Body:
    from suite.worker.engines.megatron.stack import parallel_state

    with world_of(rank, ranks) as world:
        try:
            engine = kind(body, world)
            optimizers = getattr(engine._optimizer, "chained_optimizers", [engine._optimizer])
            sent = sent_in_a_step(engine, optimizers, body)
        finally:
            parallel_state.destroy_model_parallel()
    groups = [group for one in optimizers for group in one.optimizer.param_groups]
    buffers = engine._policy.buffers + engine._policy.expert_parallel_buffers
    attention = [layer.self_attention for layer in engine._model.decoder.layers]
    caches = [one._allocate_memory(1, 1, one.key_hidden_size, torch.bfloat16) for one in attention for _ in "kv"]
    return {
        "sent": sent,
        "optimizers": len(optimizers),
        "total": engine.total_parameters,
        "weights": WEIGHT_BYTES * elements(engine._model),
        "reference": WEIGHT_BYTES * sum(map(elements, engine.models[1:])),
        "optimizer states": STATE_BYTES * sum(each.numel() for group in groups for each in group["params"]),
        "gradients": sum(buffer.grad_data.nbytes for buffer in buffers),
        "cache": sum(cache.nbytes for cache in caches),
    }


def sent_in_a_step(engine: Any, optimizers: list[Any], body: Body) -> dict[str, float]:
    """Bytes that this rank sends in one optimizer step of samples of the fullest replica's mean length, by its part as
    the planner calls it.

    One micro batch stands for all. Left out are the update itself, which sends nothing, and the norm of the gradient,
    which sends a number.
    """
    from suite.worker.asked import sample_lengths
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.samples import Samples

    engine._share_statistics = lambda _outputs: {}
    for one in optimizers:
        one.optimizer.step = lambda: None
        one.get_loss_scale = lambda: 1.0
    work, rows = body["work"], body["work"]["replica_rollouts"]
    lengths = [sum(pair) for pair in zip(*sample_lengths(body["workload"], work), strict=True)]
    fullest = max(sum(lengths[first : first + rows]) for first in range(0, len(lengths), rows))
    length = fullest // rows // 16 * 16  # so that tokens divide over experts
    tokens = torch.zeros(work["micro_batch"], length, dtype=torch.long, device=META)
    with Messages() as messages, mock.patch.object(dist, "batch_isend_irecv", messages.hand_on):
        engine.train(Samples.even(tokens, length // 2), {}, lambda logprobs, *_: (logprobs.sum(), {}))
    replicas = parallel_state.get_data_parallel_group(with_context_parallel=True)
    data = {each.group_name for each in (replicas, parallel_state.get_expert_data_parallel_group())}
    micro_batches = work["replica_batch"] // work["micro_batch"]
    every_micro_batch = {
        "tensor parallel": messages.bytes[parallel_state.get_tensor_model_parallel_group().group_name],
        "expert parallel": messages.bytes[parallel_state.get_expert_model_parallel_group().group_name],
        "pipeline sends": messages.handed_on,
    }
    sent = {part: found * micro_batches for part, found in every_micro_batch.items()}
    return {**sent, "gradient reduction": sum(messages.bytes[name] for name in data)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
