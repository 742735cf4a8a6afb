"""Plain memory formulas that people publish, beside the planner: on measured peaks, and on whether a job fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from suite.fitting.check import Check
from suite.fitting.entries import Entry, number
from suite.planner.formulas.recipes import megatron_bytes
from suite.planner.hardware import published_hardware

GIB = 2**30
_BILLION = 1e9
#: fp16 weights and gradients, Adam's fp32 copy and moments (Rajbhandari et al., arXiv 1910.02054, section 3.1).
_ADAM_BYTES = 16


def adam_rule(entry: Entry) -> float | None:
    """16 bytes per parameter, divided by all devices; ``None`` where parameters or devices are not stated."""
    params, devices = number(entry.cells.get("params_b")), number(entry.cells.get("n_gpus"))
    return _ADAM_BYTES * params * _BILLION / devices if params and devices else None


def megatron_formula(entry: Entry) -> float | None:
    """Bytes of the first stage as Megatron-LM estimates them: distributed optimizer, selective recompute.

    Activations s b h (18 + 4 f / h) a layer, 8 s b for token embeddings, s b h for their dropout, 4 s b h (1 + V / h)
    for the output, all over t (NVIDIA/Megatron-LM, megatron/training/theoretical_memory_usage.py, after Korthikanti et
    al., arXiv 2205.05198, table 2). ``None`` without a job or with a pipeline, which no measured row has.
    """
    job, params = entry.job, number(entry.cells.get("params_b"))
    if job is None or not params or job["pipeline"] > 1:
        return None
    data = job["devices"] / job["tensor"]
    states = sum(column.item() for column in megatron_bytes(np.array(1), np.array(data), np.array(0)))
    tokens, hidden = job["sequence"] * job["micro_batch"], job["hidden"]
    layers = job["layers"] * tokens * hidden * (18 + 4 * job["ffn"] / hidden)
    ends = tokens * (8 + hidden + 4 * (hidden + job["vocab"]))
    return params * _BILLION * states / job["tensor"] + (layers + ends) / job["tensor"]


def eleuther_formula(entry: Entry) -> float | None:
    """Bytes per device by EleutherAI's "Transformer Math 101" (Anthony et al., 2023) under ZeRO-3.

    Weights 2, gradients 4 and optimizer 12 bytes per parameter over all devices (weights over t besides, as its
    calculator has it); activations s b h l (10 + 24 / t), or 2 s b h l where everything is recomputed.
    """
    job, params = entry.job, number(entry.cells.get("params_b"))
    if job is None or not params or job["pipeline"] > 1:
        return None
    states = params * _BILLION * (2 / job["tensor"] + 4 + 12) / job["devices"]
    per_element = 2 if job["recompute"] == 3 else 10 + 24 / job["tensor"]
    return states + job["sequence"] * job["micro_batch"] * job["hidden"] * job["layers"] * per_element


def plain_tables(entries: Sequence[Entry], check: Check) -> str:
    """The formulas' errors on measured peaks and the 16-byte rule's on fits, with the planner's, as Markdown."""
    measured = [entry for entry in entries if entry.job and entry.peak_memory_bytes]
    formulas: dict[str, Callable[[Entry], float | None]] = {
        "16 bytes per parameter over all devices": adam_rule,
        "Megatron-LM's theoretical memory": megatron_formula,
        "EleutherAI's Transformer Math": eleuther_formula,
    }
    own = {row.config: row.predicted for row in check.rows if row.kind == "memory"}
    heads = [f"{entry.config} ({(entry.peak_memory_bytes or 0) / GIB:.1f})" for entry in measured]
    lines = [
        "Peak memory by plain formulas, GiB per device, on the measured rows (measured in brackets; the planner's "
        "parameters are fitted on these rows, the formulas have none):",
        "",
        f"| prediction | {' | '.join(heads)} | median error |",
        f"|---|{'---|' * (len(heads) + 1)}",
    ]
    for name, formula in formulas.items():
        lines.append(_line(name, measured, [formula(entry) for entry in measured]))
    lines.append(_line("**the planner**", measured, [own.get(entry.config) for entry in measured]))
    return "\n".join([*lines, "", _fits(entries, check)])


def _line(name: str, measured: Sequence[Entry], predicted: Sequence[float | None]) -> str:
    errors = [
        abs(value / entry.peak_memory_bytes - 1)
        for entry, value in zip(measured, predicted, strict=True)
        if value is not None and entry.peak_memory_bytes
    ]
    cells = ["-" if value is None else f"{value / GIB:.1f}" for value in predicted]
    middle = f"{100 * float(np.median(errors)):.1f} %" if errors else "-"
    return f"| {name} | {' | '.join(cells)} | {middle} |"


def _fits(entries: Sequence[Entry], check: Check) -> str:
    """Accuracy of the 16-byte rule on the rows that the planner judged."""
    judged = {(row.source, row.config): row.error == 0 for row in check.rows if row.kind == "fit"}
    rule: list[bool] = []
    planner: list[bool] = []
    for entry in entries:
        hardware = published_hardware(entry.cells.get("gpu_model", ""), number(entry.cells.get("gpu_mem_gb")))
        needed = adam_rule(entry)
        if entry.fits is None or hardware is None or needed is None or (entry.source, entry.config) not in judged:
            continue
        rule.append((needed <= hardware.memory_bytes) == entry.fits)
        planner.append(judged[entry.source, entry.config])
    if not rule:
        return "Fits or not: no row states parameters, devices and memory."
    return (
        f"Fits or not, on {len(rule)} rows that state parameters, devices and memory: the 16-byte rule is right for "
        f"{100 * np.mean(rule):.1f} %, the planner for {100 * np.mean(planner):.1f} %."
    )
