"""Published rows as tests write them."""

import csv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "docs" / "published"

#: A 7B FSDP row that looks like the published ones.
ROW = {
    "source_id": "somebody",
    "config_id": "a",
    "url": "https://example.org/blob/v1.2/README.md",
    "task": "pretrain",
    "framework": "Some Trainer 2",
    "model": "llama2-7b",
    "params_b": "6.74",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "ffn": "11008",
    "vocab": "32000",
    "seq_len": "4096",
    "global_batch_seqs": "128",
    "micro_batch": "1",
    "n_gpus": "8",
    "gpu_model": "H100-SXM",
    "gpu_mem_gb": "80",
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "dp": "8",
    "sharding": "FSDP",
    "act_ckpt": "none",
    "precision": "BF16",
    "metric": "step_time",
    "value": "5.6",
    "unit": "s",
    "notes": "",
}


def write_rows(path: Path, *changes: dict[str, str]) -> Path:
    """A CSV of ``ROW`` with each of ``changes``."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ROW)
        writer.writeheader()
        for index, change in enumerate(changes or ({},)):
            writer.writerow({**ROW, "config_id": f"row-{index}", **change})
    return path
