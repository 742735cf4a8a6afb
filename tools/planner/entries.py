"""From the cells of a published configuration to a job with its measured values."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from suite.claims.devices import published_device
from suite.planner.formulas.blocks import matrix_elements
from suite.planner.hardware import Hardware, hardware_of
from suite.planner.profiles import Traits
from tools.planner.stacks import traits

GIB = 2**30
_TRAINING = re.compile(r"pre-?train|\bsft\b|lora|fine-?tun|^train|^$")
_OTHER_WORK = re.compile(r"rlhf|ppo|grpo|dapo|dpo|microbench|memory|max model|throughput|layer")
_UNUSUAL_PRECISION = re.compile(r"fp32|tf32|int8|int4")
_OFFLOAD = re.compile(r"(?<!no )offload(?!\s*=\s*(?:false|none|no\b))")
_RELEASE = re.compile(r"/(?:blob|tree|raw)/([^/]+)/")
_USUAL_VOCABULARY = 50304
_GPT_WIDTH = 3.9
_HBM2E_SHARE = 0.8
#: Layers per model chunk where interleaving is known but its depth is not: what Megatron's recipes come to.
LAYERS_PER_CHUNK = 2
#: No count, size or rate of a published row comes near it; what is larger is a slip.
_LARGEST = 1e12


class Unusable(ValueError):
    """Why a configuration cannot be used."""


@dataclass(frozen=True)
class Entry:
    """One published configuration. ``job`` is ``None`` where the cells do not say enough for a timing."""

    source: str
    config: str
    model: str
    framework: str
    cells: Mapping[str, str]
    groups: Mapping[str, str]
    job: Mapping[str, float] | None
    step_seconds: float | None
    peak_memory_bytes: float | None
    fits: bool | None


def entry_of(source: str, config: str, cells: Mapping[str, str], metrics: Mapping[str, float]) -> Entry:
    """The configuration with what was measured of it. Raises Unusable with the reason."""
    if not metrics:
        raise Unusable("no step time, tokens per second, peak memory or fit is given")
    fits = metrics.get("fits")
    known = _traits(cells)
    job: dict[str, float] | None = None
    groups: dict[str, str] = {}
    try:
        job, groups = _job(cells, known)
    except Unusable:
        if fits is None:
            raise
    peak = metrics.get("peak_memory_gib")
    entry = Entry(
        source=source,
        config=config,
        model=cells.get("model", ""),
        framework=known.framework,
        cells=cells,
        groups=groups,
        job=job,
        step_seconds=_step_seconds(metrics, job) if job else None,
        peak_memory_bytes=peak * GIB if peak else None,
        fits=None if fits is None else fits > 0,
    )
    if entry.step_seconds is None and peak is None and fits is None:
        raise Unusable("neither a step time nor tokens per second with a global batch is given")
    return entry


def _traits(cells: Mapping[str, str]) -> Traits:
    """By the framework's name; a row without one is judged by its layout: tensor parallel means Megatron's way.

    fp16 training without a name is from the years before fused attention.
    """
    framework = cells.get("framework", "")
    if not framework:
        split = (number(cells.get("tp")) or 1) > 1
        old = "fp16" in cells.get("precision", "").lower()
        zero = "zero" in cells.get("sharding", "").lower()
        framework = "DeepSpeed" if zero else ("Megatron-LM" if old else "Megatron-Core") if split else ""
    return traits(framework, cells.get("notes", ""), cells.get("precision", ""))


def published_hardware(name: str, memory_gib: float | None) -> Hardware | None:
    """The device that a table calls ``name``, its memory size choosing the variant; ``None`` for an unknown one.

    A memory size that no variant has, a power limit ("500W") and HBM2e in the name go before the data sheet.
    """
    device = published_device(name, memory_gib)
    hardware = hardware_of(device) if device else None
    if hardware is None:
        return None
    power = re.search(r"(\d{2,4})\s*W\b", name)
    if power and hardware.power_watts:
        hardware = replace(hardware, power_share=min(1.5, max(0.2, float(power.group(1)) / hardware.power_watts)))
    if "hbm2e" in name.lower() and hardware.architecture == "hopper":
        hardware = replace(hardware, memory_bandwidth=_HBM2E_SHARE * hardware.memory_bandwidth)
    if memory_gib:
        hardware = replace(hardware, memory_bytes=memory_gib * GIB)
    return hardware


def number(text: str | None) -> float | None:
    """A cell's positive finite number; ``None`` for anything else, "1 (5)", "16/8" and "n/a" among them."""
    try:
        value = float(without_commas(text or ""))
    except ValueError:
        return None
    return value if 0 < value <= _LARGEST else None


def without_commas(text: str) -> str:
    """1,024 as 1024; anything else as it is."""
    return text.replace(",", "") if re.fullmatch(r"\s*\d{1,3}(,\d{3})+(\.\d*)?\s*", text) else text


def _step_seconds(metrics: Mapping[str, float], job: Mapping[str, float]) -> float | None:
    if "step_time" in metrics:
        return metrics["step_time"]
    if "hw_tflops_per_gpu" in metrics:
        return _recomputed_flops(job) / (metrics["hw_tflops_per_gpu"] * 1e12 * job["devices"])
    tokens = job["global_batch"] * job["sequence"]
    if "tokens_per_sec_per_gpu" in metrics:
        return tokens / (metrics["tokens_per_sec_per_gpu"] * job["devices"])
    return tokens / metrics["tokens_per_sec"] if "tokens_per_sec" in metrics else None


def _recomputed_flops(job: Mapping[str, float]) -> float:
    """As tables of hardware TFLOP/s count a step, recomputation in: 96 B s l h^2 (1 + s / 6h + V / 16 l h) (Narayanan
    et al., arXiv 2104.04473, section 5.1)."""
    layers, hidden, sequence = job["layers"], job["hidden"], job["sequence"]
    flops = 96 * job["global_batch"] * sequence * layers * hidden**2
    return flops * (1 + sequence / (6 * hidden) + job["vocab"] / (16 * layers * hidden))


def _job(cells: Mapping[str, str], known: Traits) -> tuple[dict[str, float], dict[str, str]]:
    task, precision = cells.get("task", "").lower(), cells.get("precision", "").lower()
    if task != "fit" and (_OTHER_WORK.search(task) or not _TRAINING.search(task)):
        raise Unusable(f"task {cells.get('task')!r} is not training of a dense model")
    if _UNUSUAL_PRECISION.search(precision) and not re.search(r"bf16|fp16|fp8", precision):
        raise Unusable(f"precision {cells.get('precision')!r} is not modelled")
    if (number(cells.get("ep")) or 1) > 1:
        raise Unusable("a mixture of experts: its shape is not given")
    shape = _shape(cells)
    hardware = published_hardware(cells.get("gpu_model", ""), number(cells.get("gpu_mem_gb")))
    if hardware is None:
        raise Unusable(f"device {cells.get('gpu_model')!r} is not in the catalogue")
    layout = _layout(cells, known, shape["layers"])
    kind = 2 if "fp4" in precision else 1 if re.search(r"fp8|float8", precision) else 0
    job = {
        **shape,
        **layout,
        **hardware.columns(),
        **known.columns(),
        "precision": kind,
        "offload_optimizer": bool(_OFFLOAD.search(cells.get("sharding", "").lower())),
        "low_rank": "lora" in task or "lora" in cells.get("sharding", "").lower(),
        "packed": bool(re.search(r"\bsft\b|lora", task)),
        "head_share": 1.0,
        "trained_share": 1.0,
        "tables": 1.0 + shape["gated"],
    }
    device = hardware.name.split("-")[0]
    groups = {"family": known.family, "framework": known.framework, "framework|device": f"{known.framework}|{device}"}
    groups["framework|device|precision"] = f"{groups['framework|device']}|{('16 bit', 'fp8', 'fp4')[kind]}"
    release = _RELEASE.search(cells.get("url", ""))
    if release:
        groups["framework|device|precision|release"] = f"{groups['framework|device|precision']}|{release.group(1)}"
    return job, groups


def _need(cells: Mapping[str, str], **columns: str) -> dict[str, float]:
    values = {name: number(cells.get(column)) for name, column in columns.items()}
    missing = [columns[name] for name, value in values.items() if value is None]
    if missing:
        raise Unusable(f"{', '.join(missing)} not given as positive numbers")
    return {name: value for name, value in values.items() if value is not None}


def _shape(cells: Mapping[str, str]) -> dict[str, float]:
    shape = _need(cells, layers="layers", hidden="hidden", heads="heads", sequence="seq_len")
    shape["kv_heads"] = number(cells.get("kv_heads")) or shape["heads"]
    shape["ffn"] = number(cells.get("ffn")) or 4 * shape["hidden"]
    shape["vocab"] = number(cells.get("vocab")) or _USUAL_VOCABULARY
    if shape["kv_heads"] > shape["heads"] or shape["heads"] > shape["hidden"]:
        raise Unusable("heads, kv_heads and hidden contradict each other")
    shape["gated"] = float(_is_gated(shape, number(cells.get("params_b"))))
    return shape


def _is_gated(shape: Mapping[str, float], billions: float | None) -> bool:
    """Whether the MLP has three matrices: which of the two comes nearer to the stated number of parameters."""
    if billions is None:
        return shape["ffn"] / shape["hidden"] < _GPT_WIDTH
    kv_share, table = shape["kv_heads"] / shape["heads"], shape["vocab"] * shape["hidden"]

    def distance(gated: int, tables: int) -> float:
        elements = matrix_elements(shape["hidden"], shape["ffn"], kv_share, gated)
        return abs(math.log((shape["layers"] * elements + tables * table) / (billions * 1e9)))

    return min(distance(1, 1), distance(1, 2)) < min(distance(0, 1), distance(0, 2))


def _layout(cells: Mapping[str, str], known: Traits, layers: float) -> dict[str, float]:
    layout = _need(cells, devices="n_gpus")
    sharding = cells.get("sharding", "").lower()
    stage = _zero_stage(sharding, known)
    degrees = {name: number(cells.get(column)) for name, column in (("tensor", "tp"), ("pipeline", "pp"))}
    if degrees["tensor"] is None and degrees["pipeline"] is None and stage < 2 and not number(cells.get("dp")):
        raise Unusable("no layout: tp, pp and dp are blank")
    tensor, pipeline = degrees["tensor"] or 1.0, degrees["pipeline"] or 1.0
    context = number(cells.get("cp")) or 1.0
    data = layout["devices"] / tensor / pipeline / context  # a product of tiny ones would be zero
    if not 1 <= data < math.inf or not math.isclose(data, round(data), rel_tol=1e-6):
        raise Unusable(
            f"tp {tensor:g} x pp {pipeline:g} x cp {context:g} does not divide {layout['devices']:g} devices"
        )
    chunks = number(cells.get("vp"))
    if chunks is None:
        told = f"{cells.get('framework', '')} {cells.get('notes', '')}".lower()
        interleaves = known.family == "megatron" or "interleav" in told
        chunks = max(1.0, round(layers / pipeline / LAYERS_PER_CHUNK)) if interleaves else 1.0
    micro, batch = number(cells.get("micro_batch")) or 1.0, number(cells.get("global_batch_seqs"))
    if batch is None:
        if cells.get("task") != "fit" or not number(cells.get("micro_batch")):
            raise Unusable("global_batch_seqs not given as a positive number")
        batch = data * micro
    return {
        **layout,
        "global_batch": batch,
        "tensor": tensor,
        "pipeline": pipeline,
        "context": context,
        "chunks": chunks if pipeline > 1 else 1.0,
        "micro_batch": _micro_batch(micro, batch / data, pipeline),
        "zero_stage": stage,
        "sequence_parallel": _sequence_parallel(cells, known, tensor),
        "recompute": _recompute(cells.get("act_ckpt", "").lower()),
    }


def _micro_batch(stated: float, of_replica: float, pipeline: float) -> float:
    """The micro batch, at most the replica's batch.

    A pipeline with fewer micro batches than stages is hardly run: what is stated there is taken for the replica's
    batch, and micro batches of one sequence are assumed.
    """
    micro = max(1.0, min(stated, of_replica))
    return 1.0 if pipeline > 1 and of_replica / micro < pipeline else micro


def _zero_stage(sharding: str, known: Traits) -> float:
    if "grad_op" in sharding or "zero-2" in sharding:
        return 2.0
    if "fsdp" in sharding or "zero-3" in sharding or "full_shard" in sharding:
        return 3.0
    if "distributed" in sharding or "zero-1" in sharding:
        return 1.0
    if sharding:
        return 0.0
    return 3.0 if known.family in ("fsdp", "xla") else float(known.engine)


def _sequence_parallel(cells: Mapping[str, str], known: Traits, tensor: float) -> bool:
    text = f"{cells.get('act_ckpt', '')} {cells.get('sharding', '')}".lower()
    if tensor <= 1 or re.search(r"no sequence|tp only", text):
        return False
    return bool(re.search(r"sequence", text)) or known.engine or known.family != "megatron"


def _recompute(text: str) -> float:
    if text.startswith("full"):
        return 3.0
    if re.search(r"selective", text):
        return 2.0 if re.search(r"\bop\b|\(op\)|layer", text) else 1.0
    return 0.0
