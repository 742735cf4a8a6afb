"""Does a published configuration fit? From what its cells say, and the stack's usual recipe where they are blank."""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from suite.planner.memory import OUTSIDE_ALLOCATOR, memory_of
from suite.planner.work import Generation, Pairs
from tools.planner.chat import CRITIC_PARAMETERS
from tools.planner.columns import alone, jobs_of
from tools.planner.entries import Entry, Unusable, number, published_hardware
from tools.planner.memory_fit import peaks, work_of

#: Width over depth of GPT-3's larger models (Brown et al., arXiv 2005.14165, table 2.1).
_ASPECT = 128
_USUAL_SEQUENCE, _RLHF_SEQUENCE = 1024, 512
_USUAL_VOCABULARY = 50304
#: DistributedDataParallel copies 16-bit gradients into buckets (Li et al., arXiv 2006.15704, section 3.2.2).
_BUCKET_BYTES = 2
Values = Mapping[str, float]


def fits(entry: Entry, p: Values) -> bool:
    """Whether it fits a device. Raises Unusable when nobody can say."""
    if entry.job is not None:
        return float(peaks(work_of([entry]), p)[0]) + OUTSIDE_ALLOCATOR <= entry.job["capacity"]
    cells = entry.cells
    hardware = published_hardware(cells.get("gpu_model", ""), number(cells.get("gpu_mem_gb")))
    if hardware is None:
        raise Unusable(f"device {cells.get('gpu_model')!r} is not in the catalogue")
    base = {**_ALONE, **_shape(cells), **hardware.columns(), "devices": number(cells.get("n_gpus")) or 1.0}
    text = " ".join(cells.get(column, "") for column in ("framework", "table", "task", "sharding")).lower()
    bytes_of = _rlhf_bytes if re.search("rlhf|ppo|ds-chat|deepspeed-chat", text) else _best
    return bytes_of(base, cells, text, p) <= hardware.memory_bytes


def _shape(cells: Mapping[str, str]) -> dict[str, float]:
    billions = number(cells.get("params_b"))
    layers, hidden = number(cells.get("layers")), number(cells.get("hidden"))
    if layers is None or hidden is None:
        if billions is None:
            raise Unusable("neither a shape nor a number of parameters is given")
        hidden = (billions * 1e9 * _ASPECT / 12) ** (1 / 3)
        layers = max(1.0, round(hidden / _ASPECT))
    heads = number(cells.get("heads")) or max(1.0, round(hidden / _ASPECT))
    kv_heads, ffn, vocab = (number(cells.get(column)) for column in ("kv_heads", "ffn", "vocab"))
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads or heads}
    shape |= {"vocab": vocab or _USUAL_VOCABULARY, "ffn": ffn or 4 * hidden, "gated": 0.0}
    if ffn is None and billions is not None:
        shape["ffn"] = max(hidden, (billions * 1e9 - shape["vocab"] * hidden) / layers / (2 * hidden) - 2 * hidden)
    return shape


_ALONE = {
    **dict.fromkeys(("tensor", "pipeline", "chunks", "context", "head_share", "trained_share"), 1.0),
    **dict.fromkeys(("precision", "low_rank", "packed", "engine", "eager", "asynchronous_tensor", "row_scaling"), 0.0),
    **dict.fromkeys(("offload_optimizer", "sequence_parallel", "fused_attention", "zero_stage"), 0.0),
    "zero_engine": 1.0,
}


def _best(base: Values, cells: Mapping[str, str], text: str, p: Values) -> float:
    """Least bytes over what is left open: micro batch 1, any tensor and pipeline degree where no sharding is named."""
    sequence, micro = number(cells.get("seq_len")) or _USUAL_SEQUENCE, number(cells.get("micro_batch")) or 1.0
    common = {**base, "sequence": sequence, "micro_batch": micro, "global_batch": base["devices"] * micro}
    if "offload" in text or re.search(r"zero-?[123]|fsdp", text):
        stage = float(match.group(1)) if (match := re.search(r"zero-?([123])", text)) else 3.0
        common |= {"zero_stage": stage, "recompute": 3.0, "zero_engine": float("fsdp" not in text)}
        offload = float("offload" in text)
        return _bytes({**common, "offload_optimizer": offload}, p, parameters=offload * (stage >= 3))
    if re.search(r"\bddp\b", text):
        row = {**common, "recompute": 0.0, "zero_engine": 0.0}
        jobs = jobs_of([row])
        buckets = _BUCKET_BYTES * float((jobs.layers * jobs.elements + jobs.vocab * jobs.hidden)[0])
        return _bytes(row, p, half=1.0) + buckets
    newer = {**common, "fused_attention": 1.0, "engine": 1.0, "zero_engine": 0.0, "zero_stage": 1.0, "recompute": 3.0}
    return min(
        _bytes({**newer, "tensor": tensor, "pipeline": pipeline, "sequence_parallel": float(tensor > 1)}, p)
        for tensor in (1.0, 2.0, 4.0, 8.0)
        for pipeline in (1.0, 2.0, 4.0, 8.0, 16.0)
        if base["devices"] % (tensor * pipeline) == 0
    )


def _bytes(row: Values, p: Values, half: float = 0.0, parameters: float = 0.0) -> float:
    work = alone(jobs_of([row]), half=half, offload_parameters=parameters)
    return float(peaks(work, p)[0]) + OUTSIDE_ALLOCATOR


def _rlhf_bytes(base: Values, cells: Mapping[str, str], text: str, p: Values) -> float:
    """Actor and equally large reference with a 350M critic, by stack: DeepSpeed-Chat's adapters on sharded weights,
    plain DDP, or ZeRO-2; responses come from the stack's own loop."""
    sequence, micro = number(cells.get("seq_len")) or _RLHF_SEQUENCE, number(cells.get("micro_batch")) or 1.0
    chat = "deepspeed" in text or "ds-chat" in text or "hybrid engine" in text
    row = {
        **base,
        "sequence": sequence,
        "micro_batch": micro,
        "recompute": 3.0,
        "head_share": 0.5,
        "global_batch": base["devices"] * micro,
        "zero_stage": 3.0 if chat else 0.0 if "ddp" in text else 2.0,
        "low_rank": float(chat),
    }
    work = alone(jobs_of([row]), held_reference=1.0)
    critic = {f"critic_{end}": np.full(1, CRITIC_PARAMETERS) for end in ("first", "last")}
    work = replace(
        work, held={**work.held, **critic}, old=1.0, reference=1.0, regathers=0.0, samples=row["global_batch"]
    )
    half = sequence / 2
    gen = Generation(work.jobs, base["devices"], 1.0, row["global_batch"], half, half, half, engine=0.0)
    return float(memory_of(work, gen, Pairs.each(1), p).total[0])
