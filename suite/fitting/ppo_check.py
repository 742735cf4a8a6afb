"""Whole PPO iterations against DeepSpeed-Chat's published rates, and the one factor that is fitted on them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from suite.fitting.entries import number
from suite.fitting.published import table_text
from suite.planner.hardware import Hardware, published_hardware
from suite.planner.jobs import Column
from suite.planner.parameters import Parameters, RateBand
from suite.planner.profiles import Profile
from suite.planner.space import Space, iterations
from suite.planner.stacks import Traits
from suite.planner.table import predict
from suite.spec.base import Frozen
from suite.spec.shape import Shape
from suite.spec.workload import Critic, Workload

#: Its hybrid engine gathers weights once an iteration to decode; attention of Hugging Face's OPT was not fused.
_PROFILE = Profile(
    "deepspeed-chat",
    Traits(
        "zero",
        "deepspeed chat",
        fused_attention=False,
        engine=False,
        interleaves=False,
        zero_engine=True,
        eager=True,
    ),
    zero_stages=(2, 3),
    plain_model=True,
)
#: What was timed (applications/DeepSpeed-Chat/training/step3_rlhf_finetuning: BenckmarkSetting.md, training_scripts):
#: 256 + 256 tokens, one generation batch and one PPO epoch, the batch of a device its micro batch, the largest that
#: fits (so recomputation is assumed), at most 1,024 sequences in all; a critic of OPT-350M; LoRA of rank 128 on one
#: device and from 13B on, and from there ZeRO-3.
_TOKENS, _MOST_SEQUENCES, _LORA_RANK, _LORA_FROM_HIDDEN = 256, 1024, 128, 5120
_CRITIC = Critic(layers=24, hidden=1024, ffn=4096, heads=16)
_FULL_RECOMPUTE = 3.0
#: Factors on computation that are tried, two percent apart.
_FACTORS = np.exp(np.arange(np.log(0.5), np.log(8), 0.02))


class PPORow(Frozen):
    """Samples per second of one published configuration; ``sequences`` of each device are the planner's own choice.

    ``held_out`` has the factor of all rows of other models, ``unscaled`` none.
    """

    config: str
    model: str
    devices: int
    sequences: int
    published: float
    predicted: float
    held_out: float
    unscaled: float


def fit_ppo(files: Sequence[Path], parameters: Parameters) -> tuple[Parameters, list[PPORow]]:
    """The parameters with the factor that fits best, and every published rate beside what is predicted.

    The band holds all ratios of published over held-out rates; ``inside`` counts the rows that lie in such a band made
    from the rows of other models alone.
    """
    cells = list(_published(files))
    if not cells:
        return parameters, []
    rates = np.array([_rates(*row, parameters) for row in cells])
    published = np.array([number(row[0]["value"]) for row in cells])
    models = np.array([row[0]["model"] for row in cells])
    ratios = published[:, None] / rates[:, 1:]

    def best(rows: Column) -> int:
        return int(np.abs(np.log(ratios[rows])).mean(axis=0).argmin())

    chosen = best(np.full(len(cells), True))
    others = [best(models != model) if (models != model).any() else chosen for model in models]
    held = ratios[np.arange(len(cells)), others]
    inside = sum(
        bool(held[models != model].min(initial=1) <= ratio <= held[models != model].max(initial=1))
        for model, ratio in zip(models, held, strict=True)
    )
    band = RateBand(
        slower=float(_FACTORS[chosen]),
        low=float(held.min()),
        median=float(np.median(held)),
        high=float(held.max()),
        rows=len(cells),
        inside=inside,
    )
    rows = [
        PPORow(
            config=row.get("config_id") or "?",
            model=row["model"],
            devices=int(number(row["n_gpus"]) or 0),
            sequences=int(rate[0]),
            published=value,
            predicted=value / ratio[chosen],
            held_out=value / ratio[other],
            unscaled=value / ratio[np.abs(_FACTORS - 1).argmin()],
        )
        for (row, _), rate, value, ratio, other in zip(cells, rates, published, ratios, others, strict=True)
    ]
    return parameters.model_copy(update={"ppo": band}), rows


def ppo_table(rows: Sequence[PPORow], band: RateBand | None) -> str:
    """The rows as Markdown."""
    if band is None:
        return "No published PPO rate was read."
    lines = [
        "Whole PPO iterations, DeepSpeed-Chat's step 3, samples per second. Sequences of a device are the most that "
        "fit by the memory model. Held out: published / predicted with the factor fitted on the other models alone:",
        "",
        "| configuration | devices | sequences each | published | predicted | published / predicted | held out |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.config} | {row.devices} | {row.sequences} | {row.published:.3g} | {row.predicted:.3g} "
            f"| {row.published / row.predicted:.2f} | {row.published / row.held_out:.2f} |"
        )
    errors = np.abs(np.array([row.held_out / row.published for row in rows]) - 1)
    plain = [row.published / row.unscaled for row in rows]
    lines += [
        "",
        f"Factor on computation {band.slower:.2f}. Published over predicted, held out: median {band.median:.2f}, from "
        f"{band.low:.2f} to {band.high:.2f}; {band.inside} of {band.rows} rows lie in the range of the other models' "
        f"rows. Absolute relative error, held out: median {100 * np.median(errors):.0f} %, 90th percentile "
        f"{100 * np.quantile(errors, 0.9):.0f} %. Without the factor: published over predicted median "
        f"{np.median(plain):.2f}, from {min(plain):.2f} to {max(plain):.2f}.",
    ]
    return "\n".join(lines)


def _published(files: Sequence[Path]) -> Iterator[tuple[dict[str, str], Hardware]]:
    """Cells of every rate of DeepSpeed-Chat's step 3 whose shape and device are known."""
    needed = ("layers", "hidden", "ffn", "heads", "vocab", "n_gpus", "value")
    for path in files:
        for row in csv.DictReader(io.StringIO(table_text(path), newline="")):
            if row.get("metric") != "step3_samples_per_sec" or "DeepSpeed-Chat" not in (row.get("framework") or ""):
                continue
            hardware = published_hardware(row.get("gpu_model") or "", number(row.get("gpu_mem_gb")))
            if hardware is not None and all(number(row.get(name)) for name in needed):
                yield {**row, "model": row.get("model") or "published"}, hardware


def _rates(cells: Mapping[str, str], hardware: Hardware, parameters: Parameters) -> list[float]:
    """Sequences of a device, then samples per second under each factor."""
    layers, hidden, ffn, heads, vocab, devices = (
        int(number(cells[name]) or 0) for name in ("layers", "hidden", "ffn", "heads", "vocab", "n_gpus")
    )
    shape = Shape(
        name=cells["model"],
        architecture="opt",
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=heads,
        vocab=vocab,
        positions=2 * _TOKENS,
    )
    large = hidden >= _LORA_FROM_HIDDEN
    work = Workload(
        name="step 3",
        prompt_tokens=_TOKENS,
        new_tokens=_TOKENS,
        rollouts=1,
        micro_batch=1,
        lora_rank=_LORA_RANK if large or devices == 1 else None,
        critic=_CRITIC,
    )
    most = max(1, _MOST_SEQUENCES // devices)
    sequences = 2.0 ** np.arange(int(np.log2(most)) + 1)
    columns = {
        "tensor": 1.0,
        "pipeline": 1.0,
        "devices": devices,
        "data": devices,
        "zero_stage": 3 if large and devices > 1 else 2,
        "distributed_optimizer": 0,
        "sequence_parallel": 0,
        "recompute": _FULL_RECOMPUTE,
        "offload_optimizer": 0,
        "offload_parameters": 0,
        "gather_for_generation": 0,
    }
    arrays = {name: np.full(len(sequences), float(value)) for name, value in columns.items()}
    arrays |= {"rollouts": sequences, "micro_batch": sequences}
    space = Space(iterations(shape, work, hardware, _PROFILE, arrays), arrays)
    fitting = np.flatnonzero(predict(space, hardware, _PROFILE, parameters).fits)
    chosen = int(fitting[-1]) if len(fitting) else 0
    same = {name: np.full(len(_FACTORS), column[chosen]) for name, column in arrays.items()}
    alike = Space(iterations(shape, work, hardware, _PROFILE, same), same)
    return [float(sequences[chosen]), *predict(alike, hardware, _PROFILE, parameters, slower=_FACTORS).rate.tolist()]
