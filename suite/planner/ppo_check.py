"""A looser check: whole PPO iterations against DeepSpeed-Chat's published samples per second."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from suite.planner.entries import number
from suite.planner.fabric import published_place
from suite.planner.iteration import phase_seconds
from suite.planner.parameters import Parameters
from suite.planner.profiles import Profile
from suite.planner.space import iterations
from suite.planner.stacks import Traits
from suite.spec.base import Frozen
from suite.spec.shape import Shape
from suite.spec.workload import Workload

#: Its hybrid engine decodes with fused kernels on weights gathered once, and trains under ZeRO; step 3 is timed as
#: generation plus training, 256 + 256 tokens, at most 1,024 sequences in all (applications/DeepSpeed-Chat/README.md).
_PROFILE = Profile(
    "deepspeed-chat",
    Traits("zero", "deepspeed chat", fused_attention=True, engine=False, interleaves=False, zero_engine=True),
    zero_stages=(2, 3),
)
_TOKENS, _MOST_SEQUENCES, _MOST_PER_DEVICE, _MICRO_BATCH = 256, 1024, 32, 8
_ZERO_3_FROM_HIDDEN = 4096


class PPORow(Frozen):
    """Samples per second of one published configuration."""

    config: str
    model: str
    devices: int
    published: float
    predicted: float


def ppo_rows(files: Sequence[Path], parameters: Parameters) -> list[PPORow]:
    """Predictions beside every published rate of DeepSpeed-Chat's step 3 whose shape and device are known."""
    rows = []
    for path in files:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            for cells in csv.DictReader(file):
                if cells.get("metric") == "step3_samples_per_sec" and "DeepSpeed-Chat" in (
                    cells.get("framework") or ""
                ):
                    row = _row(cells, parameters)
                    rows += [row] if row else []
    return rows


def _row(cells: dict[str, str], parameters: Parameters) -> PPORow | None:
    sizes = {name: number(cells.get(name)) for name in ("layers", "hidden", "ffn", "heads", "vocab", "n_gpus", "value")}
    place = published_place(cells.get("gpu_model") or "", number(cells.get("gpu_mem_gb")))
    if place is None or None in sizes.values():
        return None
    layers, hidden, ffn, heads, vocab, devices = (
        int(sizes[name] or 0) for name in ("layers", "hidden", "ffn", "heads", "vocab", "n_gpus")
    )
    shape = Shape(
        name=cells.get("model") or "published",
        architecture="opt",
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=heads,
        vocab=vocab,
        positions=2 * _TOKENS,
    )
    each = max(1, min(_MOST_PER_DEVICE, _MOST_SEQUENCES // devices))
    micro = min(_MICRO_BATCH, each)
    work = Workload(name="step 3", prompt_tokens=_TOKENS, new_tokens=_TOKENS, rollouts=each, micro_batch=micro)
    columns = dict.fromkeys(
        ("tensor", "pipeline", "distributed_optimizer", "recompute", "offload_optimizer", "offload_parameters"), 0.0
    )
    columns |= {"tensor": 1.0, "pipeline": 1.0, "devices": float(devices), "data": float(devices)}
    columns |= {"zero_stage": 3.0 if hidden >= _ZERO_3_FROM_HIDDEN and devices > 1 else 2.0, "sequence_parallel": 0.0}
    columns |= {"rollouts": float(each), "micro_batch": float(micro)}
    arrays = {name: np.array([value]) for name, value in columns.items()}
    seconds = phase_seconds(iterations(shape, work, place, _PROFILE, arrays), parameters.values)
    predicted = devices * each / float(seconds["generate"][0] + seconds["train"][0])
    return PPORow(
        config=cells.get("config_id") or "?",
        model=shape.name,
        devices=devices,
        published=sizes["value"] or 0.0,
        predicted=predicted,
    )
