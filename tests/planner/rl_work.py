"""An iteration of NeMo-RL on H100s as tests vary it: 8B parameters, GRPO, sixteen devices."""

from __future__ import annotations

from typing import Any

from suite.planner.hardware import published_hardware
from suite.planner.jobs import Jobs
from suite.planner.parameters import load_parameters
from suite.planner.rl_iteration import Generation, Predicted, RLWork, predict
from suite.planner.rl_parameters import load_rl_parameters
from suite.planner.stacks import traits

LLAMA = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256, "gated": 1}
LAYOUT = {"devices": 16, "tensor": 1, "pipeline": 2, "chunks": 1, "context": 1, "zero_stage": 1, "sequence_parallel": 0}
STEP = {"sequence": 1200.0, "attended": 1300.0, "global_batch": 512, "micro_batch": 3.2, "head_share": 1, "packed": 0}
WAYS = {"recompute": 3, "precision": 0, "low_rank": 0, "trained_share": 1, "offload_optimizer": 0, "tables": 2}
GENERATION = {"devices": 16, "tensor": 1, "samples": 2048, "prompt": 130, "response": 1060, "longest": 3964}


def rl_work(job: dict[str, Any] | None = None, gen: dict[str, Any] | None = None, **changes: Any) -> RLWork:
    device, stack = published_hardware("H100-SXM", 80), traits("NeMo-RL Megatron")
    assert device is not None
    row = {**LLAMA, **device.columns(), **stack.columns(), **LAYOUT, **STEP, **WAYS, **(job or {})}
    generation = Generation(**{**GENERATION, **(gen or {})})
    return RLWork(jobs=Jobs.of([row]), generation=generation, **{"steps": 4, "weights": 8.03e9, **changes})


def rl_seconds(**changes: Any) -> Predicted:
    return predict(rl_work(**changes), load_parameters(), load_rl_parameters())
