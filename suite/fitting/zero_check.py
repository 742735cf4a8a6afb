"""DeepSpeed's ZeRO-3 with offload on Azure: TFLOP/s that no fit has seen, against the step model."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from suite.fitting.check import errors_of, fitted
from suite.fitting.entries import Entry, Unusable, entry_of, number
from suite.fitting.fit import Rows
from suite.fitting.published import table_text
from suite.planner.parameters import Parameters

_METRIC, _VOCABULARY = "hw_tflops_per_gpu", 50304


def zero_entries(files: Sequence[Path]) -> list[Entry]:
    """Configurations that print hardware TFLOP/s per device, with the step time that follows from them.

    The source counts 96 B s l h^2 (1 + s / 6h + V / 16 l h), recomputation in (Narayanan et al., arXiv 2104.04473,
    section 5.1, as docs/_posts/2022-07-26-deepspeed-azure.md of microsoft/DeepSpeed prints it).
    """
    return list(_entries(files))


def _entries(files: Sequence[Path]) -> Iterator[Entry]:
    for path in files:
        for cells in csv.DictReader(io.StringIO(table_text(path), newline="")):
            if cells.get("metric") != _METRIC:
                continue
            names = ("global_batch_seqs", "seq_len", "layers", "hidden", "n_gpus", "value")
            batch, sequence, layers, hidden, devices, rate = (number(cells.get(name)) or np.nan for name in names)
            vocabulary = number(cells.get("vocab")) or _VOCABULARY
            flops = 96 * batch * sequence * layers * hidden**2
            flops *= 1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden)
            seconds = flops / (rate * 1e12 * devices)
            if not np.isfinite(seconds):
                continue
            try:
                yield entry_of(cells.get("source_id") or path.stem, cells["config_id"], cells, {"step_time": seconds})
            except Unusable:
                continue


def zero_table(entries: Sequence[Entry], parameters: Parameters) -> str:
    """Errors by the micro batch, which decides whether gathers or products bind, as Markdown."""
    if not entries:
        return "No published rate of ZeRO-3 with offload was read."
    rows = Rows.of(entries)
    ratios = fitted(parameters).predict(rows) / rows.seconds
    groups: dict[float, list[float]] = defaultdict(list)
    for micro, ratio in zip(rows.jobs.micro_batch.tolist(), ratios.tolist(), strict=True):
        groups[micro].append(ratio)
    lines = [
        f"DeepSpeed 0.6.2, ZeRO-3 with an offloaded optimizer on Azure, {len(entries)} step times from printed TFLOP/s "
        "(175B to 2T, 128 to 1,024 A100) that are in no fit; predicted over published:",
        "",
        "| micro batch | rows | median | from | to |",
        "|---|---|---|---|---|",
    ]
    for micro, found in sorted(groups.items()):
        lines.append(f"| {micro:g} | {len(found)} | {np.median(found):.2f} | {min(found):.2f} | {max(found):.2f} |")
    errors = errors_of(np.abs(ratios - 1).tolist())
    lines += [
        "",
        f"Absolute relative error: median {100 * (errors.median or 0):.1f} %, "
        f"90th percentile {100 * (errors.p90 or 0):.1f} %.",
    ]
    return "\n".join(lines)
