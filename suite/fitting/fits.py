"""Does a published configuration fit? From what its cells say, and the stack's usual recipe where they are blank."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from suite.fitting.entries import Entry, Unusable, number
from suite.fitting.memory_fit import half_precision
from suite.planner.formulas.activations import kv_cache_bytes
from suite.planner.hardware import published_hardware
from suite.planner.jobs import Jobs
from suite.planner.memory import GIB, OUTSIDE_ALLOCATOR, peak_bytes

#: Width over depth of GPT-3's larger models (Brown et al., arXiv 2005.14165, table 2.1).
_ASPECT = 128
_USUAL_SEQUENCE, _RLHF_SEQUENCE = 1024, 512
_USUAL_VOCABULARY = 50304
#: DeepSpeed-Chat's step 3: LoRA of this rank on every matrix, an OPT-350M critic trained whole and reward model
#: (applications/DeepSpeed-Chat/training/step3_rlhf_finetuning/training_scripts).
_LORA_RANK = 128
_CRITIC_PARAMETERS = 0.331e9
_ADAM_BYTES = 16
#: DistributedDataParallel copies 16-bit gradients into buckets (Li et al., arXiv 2006.15704, section 3.2.2).
_BUCKET_BYTES = 2


def fits(entry: Entry, memory: Mapping[str, float]) -> tuple[bool, float, float]:
    """Whether it fits, with the bytes one device needs and those it has. Raises Unusable when nobody can say."""
    if entry.job is not None:
        jobs = Jobs.of([entry.job])
        needed = float(peak_bytes(jobs, dict(memory), half_precision([entry]))[0]) + OUTSIDE_ALLOCATOR
        return needed <= entry.job["capacity"], needed, entry.job["capacity"]
    cells = entry.cells
    hardware = published_hardware(cells.get("gpu_model", ""), number(cells.get("gpu_mem_gb")))
    if hardware is None:
        raise Unusable(f"device {cells.get('gpu_model')!r} is not in the catalogue")
    base = {**_shape(cells), **hardware.columns(), "devices": number(cells.get("n_gpus")) or 1.0}
    text = " ".join(cells.get(column, "") for column in ("framework", "table", "task", "sharding")).lower()
    needed = (
        _rlhf_bytes(base, cells, text, memory)
        if re.search("rlhf|ppo|ds-chat|deepspeed-chat", text)
        else _best(base, cells, text, memory)
    )
    return needed <= hardware.memory_bytes, needed, hardware.memory_bytes


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
    **dict.fromkeys(("slow_gathers", "offload_optimizer"), 0.0),
}


def _best(base: Mapping[str, float], cells: Mapping[str, str], text: str, memory: Mapping[str, float]) -> float:
    """Least bytes over what is left open: micro batch 1, any tensor and pipeline degree where no sharding is named."""
    sequence, micro = number(cells.get("seq_len")) or _USUAL_SEQUENCE, number(cells.get("micro_batch")) or 1.0
    common = {**_ALONE, **base, "sequence": sequence, "micro_batch": micro, "sequence_parallel": 0.0}
    common |= {"global_batch": base["devices"] * micro, "fused_attention": 0.0, "zero_engine": 1.0, "zero_stage": 0.0}
    if "offload" in text or re.search(r"zero-?[123]|fsdp", text):
        stage = float(match.group(1)) if (match := re.search(r"zero-?([123])", text)) else 3.0
        common |= {"zero_stage": stage, "recompute": 3.0, "zero_engine": float("fsdp" not in text)}
        return _offloaded(common, memory) if "offload" in text else _bytes(common, memory)
    if re.search(r"\bddp\b", text):
        jobs = Jobs.of([{**common, "recompute": 0.0, "zero_engine": 0.0}])
        buckets = _BUCKET_BYTES * float((jobs.layers * jobs.elements + jobs.vocab * jobs.hidden)[0])
        return _bytes({**common, "recompute": 0.0, "zero_engine": 0.0}, memory, half=1.0) + buckets
    newer = {**common, "fused_attention": 1.0, "engine": 1.0, "zero_engine": 0.0, "zero_stage": 1.0, "recompute": 3.0}
    return min(
        _bytes({**newer, "tensor": tensor, "pipeline": pipeline, "sequence_parallel": float(tensor > 1)}, memory)
        for tensor in (1.0, 2.0, 4.0, 8.0)
        for pipeline in (1.0, 2.0, 4.0, 8.0, 16.0)
        if base["devices"] % (tensor * pipeline) == 0
    )


def _bytes(row: Mapping[str, float], memory: Mapping[str, float], half: float = 0.0) -> float:
    jobs = Jobs.of([row])
    return float(peak_bytes(jobs, dict(memory), np.array([half]))[0]) + OUTSIDE_ALLOCATOR


def _offloaded(row: Mapping[str, float], memory: Mapping[str, float]) -> float:
    """ZeRO-Offload keeps 16-bit weights alone on the device, ZeRO-3 with offload a matrix at a time.

    (Ren et al., arXiv 2101.06840, section 4; Rajbhandari et al., arXiv 2104.07857, section 5.)
    """
    jobs = Jobs.of([row])
    matrices = float((jobs.layers * jobs.elements + jobs.vocab * jobs.hidden)[0])
    activations = _bytes({**row, "devices": 1e9, "global_batch": 1e9, "zero_stage": 3.0}, memory)
    return activations + (2 * matrices if row["zero_stage"] < 3 else 0.0)


def _rlhf_bytes(base: Mapping[str, float], cells: Mapping[str, str], text: str, memory: Mapping[str, float]) -> float:
    """Actor and equally large reference with a 350M critic, by stack: DeepSpeed-Chat's LoRA, plain DDP, ZeRO-2."""
    sequence, micro = number(cells.get("seq_len")) or _RLHF_SEQUENCE, number(cells.get("micro_batch")) or 1.0
    jobs = Jobs.of(
        [
            {
                **_ALONE,
                **base,
                "sequence": sequence,
                "micro_batch": micro,
                "sequence_parallel": 0.0,
                "recompute": 3.0,
                "global_batch": base["devices"] * micro,
                "fused_attention": 0.0,
                "zero_engine": 1.0,
                "zero_stage": 0.0,
            }
        ]
    )
    elements, ranks = float((jobs.layers * jobs.elements)[0]), base["devices"]
    actor = elements + base["vocab"] * base["hidden"]
    if "deepspeed" in text or "ds-chat" in text or "hybrid engine" in text:
        widths = base["hidden"] * 6 + 2 * (base["hidden"] + base["ffn"]) + 2 * base["hidden"]
        adapters = base["layers"] * _LORA_RANK * widths
        # Weights and reference are sharded; the hybrid engine gathers the actor anew, tensor parallel, to generate.
        states = (4 * actor + _ADAM_BYTES * adapters + (2 * actor if ranks > 1 else 0)) / ranks
        states += _ADAM_BYTES * _CRITIC_PARAMETERS / ranks
    elif "ddp" in text:
        states = (_ADAM_BYTES + 2) * actor + _ADAM_BYTES * _CRITIC_PARAMETERS
    else:
        # ZeRO-2 on both models that train, beside a whole reference.
        states = (2 + 14 / ranks) * (actor + _CRITIC_PARAMETERS) + 2 * actor
    cache = kv_cache_bytes(micro, sequence, base["layers"], base["hidden"], base["kv_heads"] / base["heads"], 1)
    inputs = 2 * micro * sequence * base["hidden"] * base["layers"]
    work = max(float(cache), inputs + memory["logit_bytes"] * micro * sequence / 2 * base["vocab"])
    return (states + work) * (1 + memory["fragmentation"]) + OUTSIDE_ALLOCATOR


def gib(value: float) -> str:
    """Bytes as GiB with one digit."""
    return f"{value / GIB:.1f} GiB"
