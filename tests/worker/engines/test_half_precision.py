"""In bf16 both engines do the same work: each is as far from fp32 as bf16's rounding says, and not from the other.

Run as a script this file is the program of one rank: ``python -m tests.worker.engines.test_half_precision FOLDER``.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worker.engines.batches import even_batch, loss_of
from tests.worker.engines.megatron.test_layouts import FFN, HIDDEN, LAYERS, whole_weights
from tests.worker.tiny import run_program, tiny_manifest

STEPS, PROMPT_TOKENS, NEW_TOKENS, ROWS, VOCAB = 3, 8, 8, 8, 50257

#: half the distance from 1 to the next number of bf16: what rounding changes at most, relative to the number
ROUNDING = 2.0**-8
#: tensors that are compared, beside the parameters' updates
SCORED = ("logprobs", "values", "trained logprobs", "trained values")
#: by ranks: engine and layout of equal work, the same global batch in as many micro batches; the first is the measure
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"deepspeed": {}, "megatron": {}},
    2: {
        "deepspeed zero2 dp2": {"zero_stage": 2},
        "megatron dist-opt dp2": {"distributed_optimizer": True},
        "megatron tp2 sp": {"tensor": 2, "data": 1, "sequence_parallel": True},
    },
}


# --- the program of one rank -----------------------------------------------------------------------------------------


def manifest_of(ranks: int, layout: dict[str, Any], precision: str) -> dict[str, Any]:
    return tiny_manifest(
        ranks,
        stack={},
        shape={"layers": LAYERS, "hidden": HIDDEN, "ffn": FFN, "vocab": VOCAB},
        layout=layout,
        workload={"rollouts": ROWS // ranks, "micro_batch": 2, "optimizer": {"learning_rate": 1e-3}},
        measure={"precision": precision},
    ).model_dump(mode="json", by_alias=True)


def rank_program(folder: Path) -> None:
    """Every layout in fp32 and bf16 from equal weights; DeepSpeed first: Megatron's CPU patches are process-wide."""
    import torch

    from suite.worker.rank import read_rank
    from suite.worker.world import join

    torch.set_num_threads(1)
    world = join(read_rank(os.environ), "cpu", 60.0)
    seen: dict[str, Any] = {}
    start: dict[str, Any] = {}
    for case, layout in LAYOUTS[world.world_size].items():
        for precision in ("fp32", "bf16"):
            manifest = manifest_of(world.world_size, layout, precision)
            build = deepspeed_engine if case.startswith("deepspeed") else megatron_engine
            engine, parameters = build(manifest, world, start)
            seen[f"{case} {precision}"] = observe(engine, manifest, parameters)
    told = {
        case: {"replica": one["replica"], "steps": one["steps"], "distances": distances(seen, case)}
        for case, one in seen.items()
    }
    (folder / f"{world.world_size}.{world.rank}.json").write_text(json.dumps(told))


def deepspeed_engine(manifest: dict[str, Any], world: Any, start: dict[str, Any]) -> tuple[Any, Any]:
    """Rounded weights; ``start`` gets them under Megatron's names."""
    engine = rounded_deepspeed(manifest, world)
    start.update(whole_weights(engine._policy, VOCAB))
    count_steps_from_zero(engine._engine.optimizer)
    return engine, lambda: whole_weights(engine._policy, VOCAB)


def rounded_deepspeed(manifest: dict[str, Any], world: Any) -> Any:
    """The engine with weights as drawn, rounded to bf16 in fp32 too."""
    import torch

    from suite.worker.engines import engine_class
    from suite.worker.engines.deepspeed import engine as module

    draw = module.draw_weights

    @torch.no_grad()
    def draw_rounded(model: Any, *arguments: Any) -> None:
        draw(model, *arguments)
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())

    module.draw_weights = draw_rounded
    try:
        return engine_class("deepspeed", "cpu")(manifest, world)
    finally:
        module.draw_weights = draw


def count_steps_from_zero(optimizer: Any) -> None:
    """Without ZeRO, DeepSpeed's 16-bit optimizer takes a step without gradients as it is built, and AdamW counts it.

    Its bias correction would then make the first update 0.74 times as large as that of every other layout.
    """
    for state in getattr(optimizer, "optimizer", optimizer).state.values():
        state["step"].zero_()


def megatron_engine(manifest: dict[str, Any], world: Any, start: dict[str, Any]) -> tuple[Any, Any]:
    import torch

    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.engines.megatron.weights import shard

    def whole() -> dict[str, Any]:
        return {name: whole_parameter(parameter, start[name]) for name, parameter in engine._model.named_parameters()}

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    engine = MegatronEngine(manifest, world)
    with torch.no_grad():
        for name, parameter in engine._model.named_parameters():
            parameter.copy_(shard(start[name], name, parameter))
    engine._optimizer.reload_model_params()
    return engine, whole


def whole_parameter(parameter: Any, like: Any) -> Any:
    """A parameter of the shape of ``like`` from the shards of all tensor ranks, padding cut off."""
    import torch

    from suite.worker.engines.megatron.stack import parallel_state

    if not getattr(parameter, "tensor_model_parallel", False):
        return parameter.detach().clone()
    group = parallel_state.get_tensor_model_parallel_group()
    shards = [torch.empty_like(parameter) for _ in range(group.size())]
    torch.distributed.all_gather(shards, parameter.detach(), group=group)
    return torch.cat(shards, dim=parameter.partition_dim)[: like.size(0)]


def fixed_batch() -> dict[str, Any]:
    """Off policy, so that both clips of PPO's loss bite; tokens of the whole vocabulary."""
    import torch

    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(VOCAB, (ROWS, PROMPT_TOKENS + NEW_TOKENS), generator=generator)
    noise = partial(torch.randn, ROWS, NEW_TOKENS, generator=generator)
    return {
        "tokens": tokens,
        "logprobs": -10.8 + 0.2 * noise(),
        "values": 0.2 * noise(),
        "advantages": noise(),
        "returns": noise(),
    }


def observe(engine: Any, manifest: dict[str, Any], parameters: Any) -> dict[str, Any]:
    """Log-probs and values of this replica's rows before and after some steps; losses and updates of these steps."""
    import torch

    from suite.worker.samples import Samples

    rows = ROWS // engine.data_parallel_size
    own = slice(engine.data_parallel_rank * rows, (engine.data_parallel_rank + 1) * rows)
    batch = {name: tensor[own] for name, tensor in fixed_batch().items()}

    def placed(tensor: Any) -> Any:
        whole = torch.full((ROWS, NEW_TOKENS), torch.nan)
        whole[own] = tensor
        return whole

    seen: dict[str, Any] = {}
    before = parameters()
    samples = Samples.even(batch.pop("tokens"), PROMPT_TOKENS)
    batch = even_batch(manifest, **batch)
    logprobs, values = engine.score(samples)
    seen["logprobs"], seen["values"] = placed(logprobs), placed(values)
    steps = [engine.train(samples, dict(batch), loss_of(manifest)) for _ in range(STEPS)]
    logprobs, values = engine.score(samples)
    seen["trained logprobs"], seen["trained values"] = placed(logprobs), placed(values)
    after = parameters()
    updates = {name: after[name].float() - before[name].float() for name in before if is_compared(name)}
    return {"replica": engine.data_parallel_rank, "steps": steps, "tensors": seen, "updates": updates}


def is_compared(name: str) -> bool:
    """Not the biases of keys, whose gradient is nothing but rounding (they shift all scores of a query alike).

    Nor the weights of LayerNorms: in bf16 the next number to 1 is further away than a few updates go.
    """
    return "linear_qkv.bias" not in name and not ("layernorm" in name and name.endswith("weight"))


def distances(seen: dict[str, Any], case: str) -> dict[str, dict[str, float]]:
    """To each other case: of tensors ``distance``, of updates the root of its mean square over the parameters."""
    own, found = seen[case], {}
    for other, there in seen.items():
        found[other] = {name: distance(own["tensors"][name], there["tensors"][name]) for name in SCORED}
        of_updates = [distance(own["updates"][name], update) for name, update in there["updates"].items()]
        found[other]["updates"] = (sum(one**2 for one in of_updates) / len(of_updates)) ** 0.5
    return found


def distance(tensor: Any, reference: Any) -> float:
    """Root mean square difference, relative to how the reference's numbers spread."""
    both = ~(tensor.isnan() | reference.isnan())
    difference, reference = (tensor - reference)[both].double(), reference[both].double()
    spread = reference - reference.mean() if reference.numel() > 1 else reference
    return float((difference.square().mean() / spread.square().mean()).sqrt())


# --- the launch ------------------------------------------------------------------------------------------------------


def launch(folder: Path, ranks: int) -> list[dict[str, Any]]:
    """What each rank saw."""
    run_program(["tests.worker.engines.test_half_precision", str(folder)], ranks, folder, 200)
    return [json.loads((folder / f"{ranks}.{rank}.json").read_text()) for rank in range(ranks)]


#: Two ranks in bf16 are compared in every round too, by test_families_agreement.
CASES = [pytest.param(ranks, marks=() if ranks == 1 else pytest.mark.thorough) for ranks in LAYOUTS]


@pytest.fixture(scope="module", params=CASES)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return launch(tmp_path_factory.mktemp("half"), request.param)


def compared(seen: list[dict[str, Any]], precision: str, of: str) -> dict[str, dict[str, float]]:
    """Each case of a precision, and how far it is from the first case of the precision ``of``, over all ranks."""
    first = next(case for case in seen[0] if case.endswith(of))
    return {
        case: {
            name: (sum(rank[case]["distances"][first][name] ** 2 for rank in seen) / len(seen)) ** 0.5
            for name in (*SCORED, "updates")
        }
        for case in seen[0]
        if case.endswith(precision) and case != first
    }


pytestmark = [pytest.mark.ranks, pytest.mark.timeout(250)]


def test_in_fp32_every_layout_of_both_engines_computes_the_same(seen: list[dict[str, Any]]) -> None:
    for case, far in compared(seen, "fp32", of="fp32").items():
        assert all(far[name] < 1e-4 for name in SCORED), (case, far)
        assert far["updates"] < 1e-2, (case, far)  # a gradient near nothing may change its sign, and AdamW its step


def test_in_bf16_both_are_as_far_from_fp32_as_its_rounding_says(seen: list[dict[str, Any]]) -> None:
    """Some roundings to 2^-8 on the way from the embedding to the head; less than half of one would be no bf16."""
    for case, far in compared(seen, "bf16", of="fp32").items():
        assert all(ROUNDING / 2 < far[name] < 4 * ROUNDING for name in ("logprobs", "values")), (case, far)
        assert far["trained logprobs"] < 4 * ROUNDING, (case, far)
        assert far["trained values"] < 16 * ROUNDING, (case, far)
        assert ROUNDING / 2 < far["updates"] < 32 * ROUNDING, (case, far)


def test_in_bf16_no_engine_is_further_from_fp32_than_the_other(seen: list[dict[str, Any]]) -> None:
    (_, measure), *others = compared(seen, "bf16", of="fp32").items()
    for case, far in others:
        for name, distance_of_first in measure.items():
            assert 1 / 2 < far[name] / distance_of_first < 2, (case, name, far, measure)


def test_in_bf16_the_engines_differ_as_independent_roundings_would_or_less(seen: list[dict[str, Any]]) -> None:
    """Independent errors add as squares; a systematic difference, up to the plain sum, would show beyond."""
    (_, measure), *others = compared(seen, "bf16", of="fp32").items()
    for case, far in others:
        for name, difference in compared(seen, "bf16", of="bf16")[case].items():
            assert difference < 1.2 * (measure[name] ** 2 + far[name] ** 2) ** 0.5, (case, name)


@pytest.mark.parametrize(("name", "tolerance"), [("loss", 0.01), ("value_loss", 0.01), ("gradient_norm", 0.01)])
def test_in_bf16_the_engines_tell_the_same_losses_and_norms(
    seen: list[dict[str, Any]], name: str, tolerance: float
) -> None:
    for step in range(STEPS):
        told = {case: mean_over_replicas(seen, case, step, name) for case in seen[0] if case.endswith("bf16")}
        measure = next(iter(told.values()))
        assert told == pytest.approx(dict.fromkeys(told, measure), rel=tolerance), step


def mean_over_replicas(seen: list[dict[str, Any]], case: str, step: int, name: str) -> float:
    by_replica = {rank[case]["replica"]: rank[case]["steps"][step][name] for rank in seen}
    return sum(by_replica.values()) / len(by_replica)


if __name__ == "__main__":
    rank_program(Path(sys.argv[1]))
