"""How a published RL configuration ran: devices, layouts of both sides, lengths, and its optimizer step, from cells."""

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from suite.planner.formulas.generation import QUANTILES, USUAL_SPREAD
from suite.planner.hardware import Hardware
from suite.planner.profiles import Traits
from tools.planner.entries import Unusable, number, published_hardware

_ENGINE_TENSOR = re.compile(r"->\s*TP(\d+)|->\s*DP\d+\b")
#: Of a pack's length that samples fill: first-fit packing of samples well below it leaves a few percent.
_FILLED = 0.95
#: Devices of the same chip under another name, and the share of the link that is left of them.
SAME_CHIP = {"H800": ("H100-SXM", 4 / 9), "A800": ("A100-SXM", 2 / 3)}
_LONGEST = re.compile(r"longest response in the batch (\d{1,7})")
_USUAL_MICRO, _USUAL_STEPS, _USUAL_PROMPT = 4.0, 4.0, 120.0
#: What stacks do by their own documents, where a row does not say: by stack and release, a fact, its source.
_FACTS = list(csv.DictReader((Path(__file__).parent / "stacks.csv").open(encoding="utf-8")))


def expected_longest(mean: float, spread: float, cap: float, count: float) -> float:
    """Tokens of the longest of ``count`` responses of lognormal length, at most ``cap``, which lies below the quantile
    p^(1 / count) with chance p (David and Nagaraja, "Order Statistics", 2003, section 2.1)."""
    chances, weights = QUANTILES
    quantiles = ndtri(chances ** (1 / max(count, 1)))
    lengths = np.minimum(mean * np.exp(spread * quantiles - spread**2 / 2), cap)
    return min(cap, max(mean, float(lengths @ weights)))


def hardware_of(cells: Mapping[str, str], only_sync: bool) -> Hardware:
    name = cells.get("gpu_model", "")
    implied = re.search(r"implies[^)]{0,80}?(A100|H100)", name)
    if implied:
        name = f"{implied.group(1)}-SXM"
    same = SAME_CHIP.get(name.upper())
    if not name and only_sync:
        name = "H100-SXM"  # only the weights' bytes and tensors count there
    found = published_hardware(same[0] if same else name, number(cells.get("gpu_mem_gb")))
    if found is None:
        raise Unusable(f"device {cells.get('gpu_model')!r} is not in the catalogue")
    return found


def stack_of(cells: Mapping[str, str]) -> str:
    """Framework and training engine: what a stack's effects are learnt by."""
    name = cells.get("framework", "").lower()
    trains = f"{cells.get('train_backend', '')} {cells.get('sharding', '')}".lower()
    framework = next(
        (
            word
            for word in ("nemo-rl", "verl", "prime-rl", "skyrl", "miles", "areal", "slime", "openrlhf")
            if word in name
        ),
        name.split(" ")[0] or "unknown",
    )
    return f"{framework} {'megatron' if 'megatron' in trains else 'fsdp'}"


def fact(cells: Mapping[str, str], stack: str, name: str) -> bool:
    """Whether a stack, in the release that the row names, does so by its documents."""
    for row in _FACTS:
        release = not row["release"] or re.search(row["release"], cells.get("framework_version", ""))
        if row["fact"] == name and row["stack"] == stack.split(" ")[0] and release:
            return row["value"] == "1"
    return False


def layout_of(cells: Mapping[str, str], known: Traits, hardware: Hardware, only_sync: bool) -> dict[str, float]:
    degrees = {name: number(cells.get(name)) or 1.0 for name in ("tp", "pp", "cp", "ep", "vp")}
    train = number(cells.get("train_gpus")) or number(cells.get("n_gpus"))
    generate = number(cells.get("gen_gpus")) or number(cells.get("n_gpus"))
    if train is None or generate is None:
        if not only_sync:
            raise Unusable("the number of devices is not given")
        train = generate = train or generate or 8.0
    backend = f"{cells.get('train_backend', '')} {cells.get('sharding', '')}".lower()
    megatron = "megatron" in backend
    split = re.search(r"\bsp(\d+)\b", backend)
    if split:
        degrees["cp"] = float(split.group(1))
    if train < degrees["tp"] * degrees["pp"] * degrees["cp"]:
        raise Unusable("fewer training devices than its parallel degrees multiply to")
    reached = _ENGINE_TENSOR.search(cells.get("notes", ""))
    tensor = number(cells.get("gen_tp")) or (float(reached.group(1) or 1) if reached else 1.0)
    return {
        **degrees,
        "train": train,
        "generate": generate,
        "gen_tp": min(tensor, generate),
        "megatron": float(megatron),
        "stage": 1.0 if megatron else 3.0,
        "colocated": float("disagg" not in cells.get("placement", "").lower()),
    }


def lengths_of(
    cells: Mapping[str, str], metrics: Mapping[str, float], layout: Mapping[str, float], only_sync: bool
) -> dict[str, float]:
    """Mean prompt, mean and longest response, spread, samples; a trainer alone has whole sequences."""
    group = (number(cells.get("prompts_per_step")) or 0) * (number(cells.get("gens_per_prompt")) or 1)
    samples = number(cells.get("global_batch_seqs")) or group
    trainer = "train_step_time" in metrics or ("fits" in metrics and "step_time" not in metrics)
    sequence = number(cells.get("seq_len"))
    if only_sync or trainer:
        if not (only_sync or (sequence and samples)):
            raise Unusable("seq_len and global_batch_seqs are not given")
        alike = {"response": (sequence or 2.0) - 1, "longest": sequence or 2.0, "samples": samples or 1.0}
        return {"prompt": 1.0, "spread": 0.0, "trainer": 1.0, **alike}
    samples = samples or group
    response = number(cells.get("resp_len_mean"))
    rate, seconds = metrics.get("gen_tokens_per_sec_per_gpu"), metrics.get("generation_time")
    if response is None and rate and seconds and samples:
        response = rate * seconds * layout["generate"] / samples
    whole = "trajectory" in cells.get("notes", "").lower()
    if response is None or not samples:
        raise Unusable("the mean length of a response is not given" if samples else "samples of a step are not given")
    prompt = number(cells.get("prompt_len_mean")) or (1.0 if whole else _USUAL_PROMPT)
    cap = number(cells.get("resp_len_max")) or sequence or 8 * response
    cap = max(response, cap - prompt if cap == sequence else cap)
    spread = min(USUAL_SPREAD, max(0.05, math.log(cap / response)))
    told = _LONGEST.search(cells.get("notes", ""))
    longest = metrics.get("resp_len_max_in_batch") or (number(told.group(1)) if told else None)
    longest = longest or expected_longest(response, spread, cap, samples)
    return {
        "prompt": prompt,
        "response": response,
        "longest": max(longest, response),
        "spread": spread,
        "samples": samples,
        "trainer": 0.0,
    }


def work_of(
    cells: Mapping[str, str], stack: str, layout: Mapping[str, float], lengths: Mapping[str, float]
) -> dict[str, float]:
    batch = number(cells.get("optimizer_batch"))
    mini = re.search(r"mini batch (\d+)", cells.get("notes", ""))
    prompts = number(cells.get("prompts_per_step"))
    trained = re.search(r"train batch (\d+)", cells.get("notes", ""))
    if batch is None and trained:
        batch = float(trained.group(1))
    steps = (
        lengths["samples"] / batch if batch else prompts / float(mini.group(1)) if prompts and mini else _USUAL_STEPS
    )
    scores = number(cells.get("scores"))
    algorithm = f"{cells.get('algorithm', '')} {cells.get('task', '')}".lower()
    if scores is None:
        no_reference = re.search(r"no kl", cells.get("notes", ""), re.I) or "dapo" in algorithm
        scores = 1.0 if no_reference else 2.0
    given = cells.get("gen_eager", "")
    eager = given == "True" if given else fact(cells, stack, "gen_eager")
    fp8 = re.search(r"fp8", f"{cells.get('precision', '')} {cells.get('model', '')}", re.I)
    return {
        "gen_devices": layout["generate"],
        "gen_tensor": layout["gen_tp"],
        "gen_bytes": number(cells.get("gen_bytes")) or (1.0 if fp8 else 2.0),
        "pool_share": number(cells.get("pool_share")) or 0.6,
        "eager": float(eager),
        "steps": 1.0 if lengths["trainer"] else max(1.0, steps),
        "scores": 0.0 if lengths["trainer"] or cells.get("scores") == "0" else scores,
        "colocated": layout["colocated"],
        "staleness": _staleness(cells),
        "chunked_loss": float(fact(cells, stack, "chunked_loss") and "rl" in cells.get("algorithm", "").lower()),
        "group": number(cells.get("gens_per_prompt")) or 1.0,
        "flash_three": float("flash_attention_3" in f"{cells.get('train_backend', '')} {cells.get('config_id', '')}"),
        "activations_offloaded": float("activation offload" in cells.get("act_ckpt", "").lower()),
        "engine": 1.0,
        **dict.fromkeys(("critic", "critic_parameters", "reference_held"), 0.0),
        **{name: lengths[name] for name in ("samples", "prompt", "response", "longest", "spread")},
    }


def _staleness(cells: Mapping[str, str]) -> float:
    given = number(cells.get("staleness"))
    if given is None:
        given = 1.0 if "async" in cells.get("sync_mode", "").lower() and not cells.get("staleness") else 0.0
    return given


def job_of(
    cells: Mapping[str, str],
    stack: str,
    layout: Mapping[str, float],
    lengths: Mapping[str, float],
    known: Traits,
) -> dict[str, float]:
    """Properties of an optimizer step on the training devices."""
    mean = lengths["prompt"] + lengths["response"]
    squared = (lengths["prompt"] + lengths["response"]) ** 2 + lengths["response"] ** 2 * math.expm1(
        lengths["spread"] ** 2
    )
    capacity = number(cells.get("seq_len")) or mean
    packed = cells.get("packed", "") != "False"
    micro, sequence, attended = _micro(cells, stack, layout), mean, squared / mean
    filled = fact(cells, stack, "packs_filled")
    if lengths["trainer"]:
        attended, sequence = capacity, capacity
    elif not packed:
        sequence = attended = max(mean, min(capacity, lengths["prompt"] + lengths["longest"]))
    elif filled or micro is None:
        micro = max(1.0, _FILLED * (micro or 1.0) * capacity / mean) if filled else _USUAL_MICRO
    text = f"{cells.get('act_ckpt', '')}".lower()
    full = "full" in text or "offload" in text or text == "on" or (fact(cells, stack, "recompute") and not text)
    work_steps = work_of(cells, stack, layout, lengths)["steps"]
    precision = cells.get("precision", "").lower()
    lora = re.search(r"lora", f"{cells.get('algorithm', '')} {cells.get('task', '')} {cells.get('notes', '')}", re.I)
    return {
        "sequence": sequence,
        "attended": attended,
        "global_batch": max(1.0, lengths["samples"] / work_steps),
        "micro_batch": micro or 1.0,
        "devices": layout["train"],
        "tensor": layout["tp"],
        "pipeline": layout["pp"],
        "chunks": layout["vp"],
        "context": layout["cp"],
        "expert_parallel": min(layout["ep"], layout["train"]) if layout["megatron"] else 1.0,
        "zero_stage": layout["stage"],
        "sequence_parallel": float(layout["tp"] > 1 and known.family == "megatron"),
        "recompute": 3.0 if full else 1.0,
        "precision": 1.0 if re.search(r"fp8", precision) and "train" not in precision else 0.0,
        "low_rank": float(bool(lora)),
        "packed": 0.0,
        "head_share": 1.0,
        "trained_share": 1.0,
        "fused_attention": 1.0,
        "eager": float(fact(cells, stack, "eager") and not layout["megatron"]),
        "offload_optimizer": float("offload" in cells.get("sharding", "").lower()),
        "trainer": 1.0,
    }


def _micro(cells: Mapping[str, str], stack: str, layout: Mapping[str, float]) -> float | None:
    """Samples of a device's micro batch: "8/GPU", or a plain number, which some stacks mean of all replicas."""
    text = cells.get("micro_batch", "")
    each = re.fullmatch(r"(\d+)\s*/\s*GPU", text)
    if each:
        return float(each.group(1))
    value = number(text)
    if value is None:
        return None
    replicas = layout["train"] / (layout["tp"] * layout["pp"] * layout["cp"])
    return max(1.0, value / replicas) if fact(cells, stack, "micro_of_all_replicas") else value


def parameters_of(shape: Mapping[str, float]) -> float:
    per_block = shape["hidden"] * shape["width"] * (2 + 2 * shape["kv_heads"] / shape["heads"])
    per_block += shape["experts"] * 3 * shape["hidden"] * shape["ffn"]
    return shape["layers"] * per_block + shape["tables"] * shape["vocab"] * shape["hidden"]
