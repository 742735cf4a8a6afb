"""Llama, Qwen2 and Qwen3: from equal weights both engines take the same optimizer steps on the same uneven samples.

Run as a script this file is the program of one rank: ``python -m tests.worker.engines.test_families_agreement FOLDER``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.engines.megatron.families import VOCAB, load_checkpoint, size_of
from tests.worker.engines.test_half_precision import ROUNDING, count_steps_from_zero, distance, rounded_deepspeed
from tests.worker.tiny import run_program, tiny_manifest

STEPS, FAMILIES = 3, ("llama", "qwen2", "qwen3")
PROMPTS, RESPONSES = [3, 7, 5, 7, 4, 6, 7, 2], [4, 9, 1, 6, 12, 3, 5, 8]
ROWS = len(PROMPTS)
SCORED = ("logprobs", "trained logprobs")
#: by ranks: engine and layout of equal work; the first in fp32 is the measure
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"deepspeed zero2": {"zero_stage": 2}, "megatron": {}},
    2: {
        "deepspeed zero2 dp2 packed": {"zero_stage": 2, "packing": True},
        "megatron dist-opt dp2": {"distributed_optimizer": True},
        "megatron tp2 sp": {"tensor": 2, "data": 1, "sequence_parallel": True},
        "megatron pp2 packed": {"pipeline": 2, "data": 1, "packing": True},
    },
}


# --- the program of one rank -----------------------------------------------------------------------------------------


def manifest_of(family: str, ranks: int, layout: dict[str, Any], precision: str) -> dict[str, Any]:
    manifest = tiny_manifest(
        ranks,
        stack={},
        layout=layout,
        workload={
            "algorithm": "grpo",
            "rollouts": ROWS // ranks,
            "micro_batch": 2,
            "optimizer": {"learning_rate": 1e-3},
        },
        measure={"precision": precision},
    ).model_dump(mode="json", by_alias=True)
    return {**manifest, "size": size_of(family)}


def rank_program(folder: Path) -> None:
    """Every family and layout in fp32 and bf16; DeepSpeed first: Megatron's CPU patches are process-wide."""
    import torch

    from suite.worker.rank import read_rank
    from suite.worker.world import join

    torch.set_num_threads(1)
    world = join(read_rank(os.environ), "cpu", 60.0)
    seen: dict[str, Any] = {}
    starts: dict[str, Any] = {}
    cases = [
        (case, layout, family, precision)
        for case, layout in LAYOUTS[world.world_size].items()
        for family in FAMILIES
        for precision in ("fp32", "bf16")
    ]
    for case, layout, family, precision in cases:
        manifest = manifest_of(family, world.world_size, layout, precision)
        if case.startswith("deepspeed"):
            engine = deepspeed_engine(manifest, world)
            starts[family] = {name: tensor.float().clone() for name, tensor in engine.weights()}
        else:
            engine = megatron_engine(manifest, world, starts[family])
        seen[f"{family} {precision} {case}"] = observe(engine, manifest)
    told = {}
    for name, one in seen.items():
        family, precision, _ = name.split(" ", 2)
        measure = next(iter(other for other in seen if other.startswith(f"{family} fp32")))
        twin = next(iter(other for other in seen if other.startswith(f"{family} {precision}")))
        told[name] = {"steps": one["steps"], "to fp32": apart(one, seen[measure]), "to first": apart(one, seen[twin])}
    (folder / f"{world.world_size}.{world.rank}.json").write_text(json.dumps(told))


def deepspeed_engine(manifest: dict[str, Any], world: Any) -> Any:
    engine = rounded_deepspeed(manifest, world)
    count_steps_from_zero(engine._engine.optimizer)
    return engine


def megatron_engine(manifest: dict[str, Any], world: Any, checkpoint: dict[str, Any]) -> Any:
    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.stack import parallel_state

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    engine = MegatronEngine(manifest, world)
    load_checkpoint(engine._model, manifest["size"], checkpoint)
    engine._optimizer.reload_model_params()
    return engine


def observe(engine: Any, manifest: dict[str, Any]) -> dict[str, Any]:
    """Log-probs of this replica's rows before and after some GRPO steps, their statistics, and the weights' updates."""
    import torch

    from suite.worker.algorithms import build_algorithm
    from suite.worker.samples import Samples

    rows = ROWS // engine.data_parallel_size
    own = range(engine.data_parallel_rank * rows, (engine.data_parallel_rank + 1) * rows)
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(VOCAB, (ROWS, max(map(sum, zip(PROMPTS, RESPONSES, strict=True)))), generator=generator)
    everyone = Samples(tokens, PROMPTS, RESPONSES)
    samples, mask = everyone.take(own), everyone.mask()
    noise = torch.randn(2, *mask.shape, generator=generator)
    parts = rows // manifest["work"]["micro_batch"] * engine.data_parallel_size
    # Off policy, so that the clip bites: near the log-prob of a uniform draw, which these small weights give.
    batch = {
        "logprobs": -torch.tensor(float(VOCAB)).log() + 0.2 * noise[0],
        "advantages": noise[1],
        "mask": mask,
        "weight": mask.float() * parts / mask.sum(),
    }
    batch = {name: tensor[own.start : own.stop, : samples.longest_response] for name, tensor in batch.items()}

    def scored() -> Any:
        whole = torch.full(mask.shape, torch.nan)
        whole[own.start : own.stop, : samples.longest_response] = engine.score(samples)[0]
        return whole.masked_fill(~mask, torch.nan)

    before = {name: tensor.float().clone() for name, tensor in engine.weights()}
    seen = {"logprobs": scored()}
    loss = build_algorithm(manifest["workload"]).loss
    steps = [engine.train(samples, dict(batch), loss) for _ in range(STEPS)]
    seen["trained logprobs"] = scored()
    # In bf16 the next number to 1 is further from it than a few updates go, so norms are left out; and biases of keys,
    # whose gradient is rounding alone.
    updates = {
        name: tensor.float() - before[name]
        for name, tensor in engine.weights()
        if "norm" not in name and "k_proj.bias" not in name
    }
    assert all(name in before for name in updates) and len(updates) > 10
    return {"steps": steps, "tensors": seen, "updates": updates}


def apart(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Of log-probs the ``distance``, of updates the root of its mean square over the weights."""
    found = {name: distance(one["tensors"][name], other["tensors"][name]) for name in SCORED}
    squares = [distance(one["updates"][name], update) ** 2 for name, update in other["updates"].items()]
    return {**found, "updates": (sum(squares) / len(squares)) ** 0.5}


# --- the launch ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=LAYOUTS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 saw."""
    ranks, folder = request.param, tmp_path_factory.mktemp("families")
    run_program(["tests.worker.engines.test_families_agreement", str(folder)], ranks, folder, 200)
    told: dict[str, Any] = json.loads((folder / f"{ranks}.0.json").read_text())
    return told


pytestmark = [pytest.mark.ranks, pytest.mark.timeout(250)]


def of_precision(seen: dict[str, Any], precision: str) -> dict[str, Any]:
    found = {name: one for name, one in seen.items() if f" {precision} " in name}
    assert len(found) == len(seen) / 2 >= len(FAMILIES) * 2
    return found


def test_in_fp32_every_layout_of_both_engines_takes_the_same_steps(seen: dict[str, Any]) -> None:
    for name, one in of_precision(seen, "fp32").items():
        far = one["to fp32"]
        assert all(far[each] < 1e-4 for each in SCORED), (name, far)
        assert far["updates"] < 1e-2, (name, far)  # a gradient near nothing may change its sign, and AdamW its step


def test_in_bf16_both_are_as_far_from_fp32_as_its_rounding_says_and_not_further_from_each_other(
    seen: dict[str, Any],
) -> None:
    for name, one in of_precision(seen, "bf16").items():
        far = one["to fp32"]
        assert ROUNDING / 2 < far["logprobs"] < 4 * ROUNDING, (name, far)
        assert far["trained logprobs"] < 8 * ROUNDING, (name, far)
        assert ROUNDING / 2 < far["updates"] < 32 * ROUNDING, (name, far)
        assert all(one["to first"][each] < 2 * far[each] for each in (*SCORED, "updates")), (name, one)


def test_both_tell_the_same_losses_and_gradient_norms(seen: dict[str, Any]) -> None:
    for precision, tolerance in (("fp32", 1e-3), ("bf16", 0.02)):
        cases = of_precision(seen, precision)
        for family in FAMILIES:
            own = [one["steps"] for name, one in cases.items() if name.startswith(family)]
            for steps in zip(*own, strict=True):
                norms = [step["gradient_norm"] for step in steps]
                assert norms == pytest.approx([norms[0]] * len(norms), rel=tolerance), (family, precision)
                assert min(norms) > 1e-3


if __name__ == "__main__":
    rank_program(Path(sys.argv[1]))
