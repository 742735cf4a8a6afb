"""Llama and Qwen shapes: from equal weights both engines take the same optimizer steps on uneven samples.

In fp32, and in bf16 as near as rounding lets them. Run as a script this file is the program of one rank:
``python -m tests.worker.engines.test_families_agree FOLDER``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worker.engines.megatron.families import load_checkpoint, size_of
from tests.worker.engines.megatron.test_families import (
    PROMPTS,
    RESPONSES,
    fixed_batch,
    fixed_samples,
    padded,
    toy_loss,
)
from tests.worker.engines.test_half_precision import count_steps_from_zero
from tests.worker.tiny import ROOT, clean_environment, free_port, rank_environment, tiny_manifest

FAMILIES = ("llama", "qwen2", "qwen3")
PRECISIONS = ("fp32", "bf16")
STEPS = 3
#: by ranks, and by engine: layouts of equal work
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"deepspeed": {"packing": True}, "megatron": {}},
    2: {"deepspeed": {"zero_stage": 2}, "megatron": {"tensor": 2, "data": 1, "sequence_parallel": True}},
}


# --- the program of one rank -----------------------------------------------------------------------------------------


def rank_program(folder: Path) -> None:
    """DeepSpeed first: Megatron's CPU patches are process-wide, and it is given the other's weights."""
    import torch

    from suite.worker.rank import read_rank
    from suite.worker.world import join

    torch.set_num_threads(1)
    world = join(read_rank(os.environ), "cpu", 60.0)
    cases = [(family, precision) for family in FAMILIES for precision in PRECISIONS]
    starts: dict[tuple[str, str], Any] = {}
    seen: dict[str, Any] = {}
    for backend, build in (("deepspeed", deepspeed_engine), ("megatron", megatron_engine)):
        for family, precision in cases:
            manifest = manifest_of(world.world_size, backend, family, precision)
            engine = build(manifest, world, starts.setdefault((family, precision), {}))
            seen[f"{backend} {family} {precision}"] = observe(engine)
    (folder / f"{world.world_size}.{world.rank}.json").write_text(json.dumps(seen))


def manifest_of(ranks: int, backend: str, family: str, precision: str) -> dict[str, Any]:
    uneven = {
        "lengths": {"kind": "list", "listed": RESPONSES},
        "prompt_lengths": {"kind": "list", "listed": PROMPTS},
        "prompt_tokens": max(PROMPTS),
        "new_tokens": max(RESPONSES),
    }
    return tiny_manifest(
        ranks,
        backend=backend,
        stack={},
        shape=size_of(family),
        layout=LAYOUTS[ranks][backend],
        workload={**uneven, "rollouts": len(PROMPTS) // ranks, "optimizer": {"learning_rate": 1e-3}},
        measure={"precision": precision},
    ).model_dump(mode="json", by_alias=True)


def deepspeed_engine(manifest: dict[str, Any], world: Any, start: dict[str, Any]) -> Any:
    """Weights three times as wide as drawn, so that log-probs spread, and rounded to bf16 in fp32 too."""
    import torch

    from suite.worker.engines import engine_class
    from suite.worker.engines.deepspeed import engine as module

    draw = module.draw_weights

    @torch.no_grad()
    def draw_rounded(model: Any, *arguments: Any) -> None:
        draw(model, *arguments)
        for parameter in model.parameters():
            parameter.copy_((parameter if parameter.dim() == 1 else 3 * parameter).bfloat16())

    module.draw_weights = draw_rounded
    try:
        engine = engine_class("deepspeed", "cpu")(manifest, world)
    finally:
        module.draw_weights = draw
    count_steps_from_zero(engine._engine.optimizer)
    start["policy"] = {name: tensor.clone() for name, tensor in engine.weights()}
    named = engine._policy.named_parameters()
    start["value_head"] = {name: each.detach().clone() for name, each in named if name.startswith("value_head")}
    return engine


def megatron_engine(manifest: dict[str, Any], world: Any, start: dict[str, Any]) -> Any:
    import torch

    from suite.worker.engines.megatron.engine import MegatronEngine
    from suite.worker.engines.megatron.stack import parallel_state

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    engine = MegatronEngine(manifest, world)
    load_checkpoint(engine._model, manifest["size"], start["policy"])
    with torch.no_grad():
        for name, parameter in engine._model.named_parameters():
            if name.startswith("value_head"):
                parameter.copy_(start["value_head"][name])
    if manifest["measure"]["precision"] != "fp32":
        engine._optimizer.reload_model_params()
    return engine


def observe(engine: Any) -> dict[str, Any]:
    rows = len(PROMPTS) // engine.data_parallel_size
    own = range(rows * engine.data_parallel_rank, rows * (engine.data_parallel_rank + 1))
    samples = fixed_samples().take(own)
    logprobs, values = engine.score(samples)
    steps = [engine.train(samples, fixed_batch(samples, own), toy_loss) for _ in range(STEPS)]
    trained, trained_values = engine.score(samples)
    return {
        "leader": engine.replica_leader,
        "replica": engine.data_parallel_rank,
        "logprobs": logprobs.tolist(),
        "values": values.tolist(),
        "trained logprobs": trained.tolist(),
        "trained values": trained_values.tolist(),
        "steps": steps,
    }


# --- what is compared ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=LAYOUTS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw."""
    ranks, folder, port = request.param, tmp_path_factory.mktemp("agree"), free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.worker.engines.test_families_agree", str(folder)],
            cwd=ROOT,
            env={**clean_environment(), **rank_environment(rank, ranks, port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(one[-3000:] for one in errors)
    return [json.loads((folder / f"{ranks}.{rank}.json").read_text()) for rank in range(ranks)]


pytestmark = [pytest.mark.ranks, pytest.mark.timeout(150)]


@pytest.mark.parametrize("family", FAMILIES)
def test_in_fp32_both_engines_take_the_same_steps(seen: Any, family: str) -> None:
    ours, theirs = ([rank[f"{backend} {family} fp32"] for rank in seen] for backend in ("deepspeed", "megatron"))
    for field in ("logprobs", "values", "trained logprobs", "trained values"):
        left, right = flat(ours, field), flat(theirs, field)
        assert largest(left, right) < 1e-4, field
    told = ours[0]["steps"][0].keys() & theirs[0]["steps"][0].keys()  # without ZeRO, DeepSpeed tells no gradient norm
    assert "gradient_norm" in told or len(seen) == 1
    for field in told & {"loss", "value_loss", "gradient_norm"}:
        assert means(ours, field) == pytest.approx(means(theirs, field), rel=1e-4), field
    assert means(ours, "loss")[-1] < means(ours, "loss")[0] - 0.05
    assert largest(flat(ours, "logprobs"), flat(ours, "trained logprobs")) > 0.1, "nothing moved"


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bf16_neither_is_further_from_fp32_than_rounding_takes_it(seen: Any, family: str) -> None:
    """Independent roundings of one size: the two differ by no more than both from fp32 together."""
    for field in ("logprobs", "values", "trained logprobs", "trained values"):
        of = {
            (backend, precision): flat([rank[f"{backend} {family} {precision}"] for rank in seen], field)
            for backend in ("deepspeed", "megatron")
            for precision in PRECISIONS
        }
        spread = deviation(of["deepspeed", "fp32"])
        apart = [rms(of[backend, "bf16"], of[backend, "fp32"]) / spread for backend in ("deepspeed", "megatron")]
        between = rms(of["deepspeed", "bf16"], of["megatron", "bf16"]) / spread
        assert 0 < max(apart) < 0.06, field
        assert max(apart) < 2.5 * min(apart), field
        assert between < sum(apart), field


def flat(ranks: list[dict[str, Any]], field: str) -> list[float]:
    return [number for row in padded(ranks, field) for number in row]


def means(ranks: list[dict[str, Any]], field: str) -> list[float]:
    leaders = [rank for rank in ranks if rank["leader"]]
    return [sum(leader["steps"][step][field] for leader in leaders) / len(leaders) for step in range(STEPS)]


def largest(left: list[float], right: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


def rms(left: list[float], right: list[float]) -> float:
    return (sum((a - b) ** 2 for a, b in zip(left, right, strict=True)) / len(left)) ** 0.5


def deviation(numbers: list[float]) -> float:
    real = [number for number in numbers if number != 0.0]
    return rms(real, [sum(real) / len(real)] * len(real))


if __name__ == "__main__":
    rank_program(Path(sys.argv[1]))
