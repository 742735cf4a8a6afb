"""From the cells of a published RL configuration to a candidate of the RL model with its measured values."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.planner.entries import GIB, Unusable, number
from tools.planner.published import Configurations, LeftOut, cells_of, is_nemo_row, is_rl, table_text, take
from tools.planner.rl_cells import (
    SAME_CHIP,
    fact,
    hardware_of,
    job_of,
    layout_of,
    lengths_of,
    parameters_of,
    stack_of,
    work_of,
)
from tools.planner.rl_nemo import read_recipes, with_recipe
from tools.planner.rl_shapes import latent_cache, rl_shape
from tools.planner.stacks import traits

#: Metrics by what predicts them: the kind, and which part of the candidate's phases.
METRICS: Mapping[str, tuple[str, str]] = {
    "step_time": ("iteration", "iteration"),
    "step_time_core": ("iteration", "iteration"),
    "generation_time": ("generation", "generation"),
    "generate_sequences_time": ("generation", "generation"),
    "old_logprob_time": ("scoring", "one score"),
    "ref_logprob_time": ("scoring", "one score"),
    "logprob_time": ("scoring", "scores"),
    "forward_logprob_time": ("scoring", "scores"),
    "policy_training_time": ("training", "training"),
    "train_step_time": ("training", "training"),
    "weight_sync_time": ("sync", "sync"),
    "reshard_time": ("sync", "sync"),
    "peak_memory_gib": ("memory", "memory"),
    "fits": ("fits", "fits"),
}
#: A range's ends, of which the middle is taken.
_ENDS = ("weight_sync_time_min", "weight_sync_time_max")
_HELP = ("tokens_per_sec_per_gpu", "gen_tokens_per_sec_per_gpu", "resp_len_max_in_batch", "resp_len_median")
_SYNC_TASK = re.compile(r"weight sync|refit|weight update", re.I)


@dataclass(frozen=True)
class RLRow:
    """One published configuration. ``values`` are measured, by (metric, kind, part)."""

    source: str
    config: str
    model: str
    stack: str
    device: str
    values: Mapping[tuple[str, str, str], float]
    job: Mapping[str, float]
    work: Mapping[str, float]

    @property
    def key(self) -> tuple[str, str, str]:
        """Rows alike in these tell little more than one."""
        return self.stack, self.model, self.device


def read_rl(files: Sequence[Path], recipes: Sequence[Mapping[str, str]] = ()) -> tuple[list[RLRow], list[LeftOut]]:
    """Usable RL configurations of the files in their order, and the rest with reasons.

    Odd cells are unknown and odd rows left out; nothing but an unreadable file stops it.
    """
    known = [*read_recipes(files), *recipes]
    rows, left_out = [], []
    for path in files:
        for key, (cells, metrics) in _configurations(path).items():
            try:
                rows.append(row_of(*key, cells, metrics, known))
            except Unusable as reason:
                left_out.append(LeftOut(*key, str(reason)))
            except (ArithmeticError, ValueError):
                left_out.append(LeftOut(*key, "its numbers contradict each other"))
    return rows, left_out


def _configurations(path: Path) -> Configurations:
    found: Configurations = {}
    reader = csv.DictReader(table_text(path).splitlines(keepends=True), restkey="", restval="")
    try:
        if not {"config_id", "metric", "value"} <= set(reader.fieldnames or ()):
            return {}
        for row in reader:
            cells = cells_of(row)
            if cells.get("config_id") and is_rl(cells):
                take(found, path, cells, (*METRICS, *_ENDS, *_HELP))
    except csv.Error:
        return found
    return found


def row_of(
    source: str,
    config: str,
    cells: Mapping[str, str],
    metrics: Mapping[str, float],
    recipes: Sequence[Mapping[str, str]],
) -> RLRow:
    """The configuration with what was measured of it. Raises Unusable with the reason."""
    if is_nemo_row(cells):
        cells = with_recipe(cells, metrics, recipes)
    only_sync = bool(_SYNC_TASK.search(cells.get("task", "")))
    _refuse(cells, metrics)
    shape = rl_shape(cells)
    hardware = hardware_of(cells, only_sync)
    known = traits(cells.get("framework", ""), cells.get("notes", ""), cells.get("precision", ""))
    stack = stack_of(cells)
    layout = layout_of(cells, known, hardware, only_sync)
    # An engine divides heads evenly: of a degree that does not, as many as do.
    layout["gen_tp"] = float(math.gcd(int(layout["gen_tp"]), int(shape["heads"])))
    lengths = lengths_of(cells, metrics, layout, only_sync)
    work = work_of(cells, stack, layout, lengths)
    if "old_logprob_time" in metrics and "ref_logprob_time" not in metrics:
        work["scores"] = 1.0  # its phases are printed, and no reference is among them
    packed = "checkpoint-engine on" in cells.get("notes", "")
    work["one_by_one"] = float(only_sync and fact(cells, stack, "sent_one_by_one") and not packed)
    work["weights"] = (number(cells.get("params_b")) or 0) * 1e9 or parameters_of(shape)
    work["cache_bytes"] = latent_cache(cells.get("model", ""))
    job = {**shape, **hardware.columns(), **known.columns(), **job_of(cells, stack, layout, lengths, known)}
    if not cells.get("gpu_model"):
        job["network"] = job["link"]  # nothing is known of it
    if SAME_CHIP.get(cells.get("gpu_model", "").upper()):
        job["link"] *= SAME_CHIP[cells["gpu_model"].upper()][1]
    if number(cells.get("node_gpus")) and "GB" not in cells["gpu_model"].upper():
        job["node_devices"] = number(cells["node_gpus"]) or job["node_devices"]
    return RLRow(
        source=source,
        config=config,
        model=cells.get("model", ""),
        stack=stack,
        device=hardware.name if cells.get("gpu_model") else "unknown",
        values=_values(metrics, fact(cells, stack, "generation_has_sync"), lengths),
        job=job,
        work=work,
    )


def _refuse(cells: Mapping[str, str], metrics: Mapping[str, float]) -> None:
    if not any(name in metrics for name in (*METRICS, *_ENDS)):
        raise Unusable("no time of an iteration or of a phase, peak memory or fit is given")
    notes = cells.get("notes", "").lower()
    if "speculative decoding" in notes and "speculative decoding off" not in notes:
        raise Unusable("speculative decoding is not modelled")
    if "overlapped part only" in notes:
        raise Unusable("by its own source the time is of an overlapped part only")
    if re.search(r"multimodal|vision|agent", cells.get("task", ""), re.I):
        raise Unusable("images, tools or other turns are not modelled")
    if "hf generate" in cells.get("gen_backend", "").lower():
        raise Unusable("generation in the training framework's own loop, with unknown prompts")
    if "max that fits" in cells.get("micro_batch", ""):
        raise Unusable("neither the micro batch nor padding is given")
    if "flash_attention_3" in cells.get("config_id", "") and "B200" in cells.get("gpu_model", "").upper():
        raise Unusable("FlashAttention 3 has no kernels for Blackwell: what did not run there says nothing of memory")
    if "fp4" in cells.get("precision", "").lower():
        raise Unusable("fp4 rollouts are not modelled")
    if re.search(r"hybrid|mamba|nemotron.?3|qwen3\.5", cells.get("model", ""), re.I):
        raise Unusable("a hybrid model: its shape is no transformer's")


def _values(
    metrics: Mapping[str, float], has_sync: bool, lengths: Mapping[str, float]
) -> dict[tuple[str, str, str], float]:
    """Measured values by metric, kind and part."""
    found: dict[tuple[str, str, str], float] = {}
    for name, (kind, part) in METRICS.items():
        value = metrics.get(name)
        if value is None:
            continue
        if name == "generation_time" and has_sync:
            part = "generation and sync"
        found[name, kind, part] = value * GIB if kind == "memory" else value
    ends = [metrics[name] for name in _ENDS if name in metrics]
    if ends:
        found["weight_sync_time", "sync", "sync"] = math.exp(sum(map(math.log, ends)) / len(ends))
    if not lengths["trainer"] and len(found) == 0:
        raise Unusable("nothing that was measured is modelled")
    return found
