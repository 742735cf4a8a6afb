"""An iteration of NeMo-RL on H100s as tests vary it: 8B parameters, GRPO, sixteen devices."""

from typing import Any

from suite.planner.iteration import Predicted, predict
from suite.planner.parameters import load_parameters
from suite.planner.work import Generation, Pairs, Training
from tools.planner.columns import alone, jobs_of
from tools.planner.entries import published_hardware
from tools.planner.stacks import traits

LLAMA = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256, "gated": 1}
LAYOUT = {"devices": 16, "tensor": 1, "pipeline": 2, "chunks": 1, "context": 1, "zero_stage": 1, "sequence_parallel": 0}
STEP = {"sequence": 1200.0, "attended": 1300.0, "global_batch": 512, "micro_batch": 3.2, "head_share": 1, "packed": 0}
WAYS = {"recompute": 3, "precision": 0, "low_rank": 0, "trained_share": 1, "offload_optimizer": 0, "tables": 2}
GENERATION = {"devices": 16, "tensor": 1, "samples": 2048, "prompt": 130, "response": 1060, "longest": 3964}


def job(**changes: Any) -> dict[str, Any]:
    device, stack = published_hardware("H100-SXM", 80), traits("NeMo-RL Megatron")
    assert device is not None
    return {**LLAMA, **device.columns(), **stack.columns(), **LAYOUT, **STEP, **WAYS, **changes}


def training(row: dict[str, Any] | None = None, **changes: Any) -> Training:
    usual = {"samples": 2048.0, "steps": 4, "weights": 8.03e9, "old": 1.0, "reference": 1.0}
    return alone(jobs_of([row or job()]), **{**usual, **changes})


def rl_seconds(
    changed: dict[str, Any] | None = None,
    gen: dict[str, Any] | None = None,
    how: dict[str, Any] | None = None,
    **work: Any,
) -> Predicted:
    """The prediction with these changes of the job, of generation, of where both stand, and of the rest."""
    row, generation = job(**(changed or {})), {"pool_share": 0.6, **GENERATION, **(gen or {})}
    one = {"pipeline": 1, "context": 1, "expert_parallel": 1, "tensor": generation["tensor"]}
    engine = Generation(jobs=jobs_of([{**row, **one}]), **generation)
    made = training(row, samples=float(generation["samples"]), **work)
    return predict(made, engine, Pairs.each(1, **(how or {})), load_parameters().values)
