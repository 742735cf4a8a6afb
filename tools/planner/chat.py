"""DeepSpeed-Chat's published rates of whole PPO iterations (step 3) as rows of iterations."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from suite.planner.hardware import Hardware
from suite.planner.iteration import predict
from suite.planner.parameters import load_priors
from tools.planner.entries import Unusable, number, published_hardware
from tools.planner.published import LeftOut, table_text
from tools.planner.rl_rows import RLRow

_METRIC = "step3_samples_per_sec"
#: What was timed (applications/DeepSpeed-Chat/training/step3_rlhf_finetuning: BenckmarkSetting.md, training_scripts):
#: 256 + 256 tokens, one generation batch and one PPO epoch, the batch of a device its micro batch, the largest that
#: fits (so recomputation is assumed), at most 1,024 sequences in all; a critic of OPT-350M; LoRA of rank 128 on one
#: device and from 13B on, and from there ZeRO-3. Its hybrid engine gathers weights once to decode; attention of Hugging
#: Face's OPT was not fused.
_TOKENS, _MOST_SEQUENCES, _LORA_FROM_HIDDEN = 256, 1024, 5120
_CRITIC_LAYERS, _CRITIC_HIDDEN, CRITIC_PARAMETERS = 24, 1024, 0.331e9


def read_chat(files: Sequence[Path]) -> tuple[list[RLRow], list[LeftOut]]:
    """Every rate whose shape and device are known, and the rest with reasons."""
    rows, left_out = [], []
    for path in files:
        for cells in csv.DictReader(io.StringIO(table_text(path), newline="")):
            if cells.get("metric") != _METRIC:
                continue
            key = (cells.get("source_id") or path.stem, cells.get("config_id") or "?")
            try:
                rows.append(_row(*key, {name: cell or "" for name, cell in cells.items() if name}))
            except Unusable as reason:
                left_out.append(LeftOut(*key, str(reason)))
    return rows, left_out


def _row(source: str, config: str, cells: Mapping[str, str]) -> RLRow:
    sizes = {name: number(cells.get(name)) for name in ("layers", "hidden", "ffn", "heads", "vocab", "n_gpus", "value")}
    missing = [name for name, value in sizes.items() if value is None]
    hardware = published_hardware(cells.get("gpu_model", ""), number(cells.get("gpu_mem_gb")))
    if missing or hardware is None:
        raise Unusable(f"{', '.join(missing)} not given" if missing else "its device is not in the catalogue")
    if "DeepSpeed-Chat" not in cells.get("framework", ""):
        raise Unusable("a framework whose layout in this comparison is not told")
    known = {name: value or 0.0 for name, value in sizes.items()}
    devices = known["n_gpus"]
    most = max(1, int(_MOST_SEQUENCES // devices))
    tried = [_candidate(source, config, cells, hardware, known, float(2**power)) for power in range(most.bit_length())]
    fitting = [row for row in tried if _fits(row)]
    return fitting[-1] if fitting else tried[0]


def _fits(row: RLRow) -> bool:
    """By the memory model before any fit, so that a row is the same whatever is left out of one."""
    from tools.planner.iteration_fit import Table

    table = Table.of([row])
    values = {name: prior.centre for name, prior in load_priors().every.items()}
    return bool(predict(table.work, table.gen, table.pairs, values).fits[0])


def _candidate(
    source: str, config: str, cells: Mapping[str, str], hardware: Hardware, known: Mapping[str, float], each: float
) -> RLRow:
    """The configuration with so many sequences on each device."""
    devices, hidden, layers = known["n_gpus"], known["hidden"], known["layers"]
    large = hidden >= _LORA_FROM_HIDDEN
    samples = each * devices
    job = {
        **hardware.columns(),
        **{name: known[name] for name in ("layers", "hidden", "ffn", "heads", "vocab")},
        **dict.fromkeys(("tensor", "pipeline", "chunks", "context", "trained_share", "zero_engine"), 1.0),
        **dict.fromkeys(("eager", "plain_model", "trainer"), 1.0),
        **dict.fromkeys(("gated", "sequence_parallel", "precision", "packed", "fused_attention", "engine"), 0.0),
        **dict.fromkeys(("asynchronous_tensor", "row_scaling", "offload_optimizer"), 0.0),
        "kv_heads": known["heads"],
        "devices": devices,
        "sequence": 2.0 * _TOKENS,
        "head_share": 0.5,
        "global_batch": samples,
        "micro_batch": each,
        "zero_stage": 3.0 if large and devices > 1 else 2.0,
        "recompute": 3.0,
        "low_rank": float(large or devices == 1),
    }
    parameters = 12 * layers * hidden**2 + known["vocab"] * hidden
    work = {
        "gen_devices": devices,
        "gen_tensor": 1.0,
        "gen_bytes": 2.0,
        "pool_share": np.nan,
        "steps": 1.0,
        "scores": 2.0,
        "critic": _CRITIC_LAYERS * _CRITIC_HIDDEN**2 / (layers * hidden**2),
        "critic_parameters": CRITIC_PARAMETERS,
        "reference_held": 1.0,
        "colocated": 1.0,
        "group": 1.0,
        "weights": parameters,
        "samples": samples,
        "prompt": float(_TOKENS),
        "response": float(_TOKENS),
        "longest": float(_TOKENS),
        **dict.fromkeys(("engine", "staleness", "one_by_one", "chunked_loss", "flash_three"), 0.0),
        **dict.fromkeys(("activations_offloaded", "spread", "cache_bytes", "eager"), 0.0),
    }
    return RLRow(
        source=source,
        config=config,
        model=cells.get("model") or "published",
        stack="deepspeed-chat zero",
        device=hardware.name,
        values={(_METRIC, "iteration", "iteration"): samples / known["value"]},
        job=job,
        work=work,
    )
