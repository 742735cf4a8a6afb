"""A manifest of the size that the recorded metrics are of, these metrics, and ranks with a program that only logs them.

``python -m tests.worker.trainers.nemo_rl.made rank MANIFEST`` is such a rank, ``... made program STEPS`` the program.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.spec.workload import Workload
from suite.worker.__main__ import leave_process, main
from suite.worker.trainers.nemo_rl.entry import LOG_VARIABLE, told
from suite.worker.trainers.nemo_rl.logged import Step, read_steps
from suite.worker.trainers.nemo_rl.trainer import NemoRlTrainer
from tests.synthetic import LLAMA, synthetic_manifest

HERE = Path(__file__).parent
STEP_SECONDS = 0.3
_MODEL = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def made_manifest(kl_coefficient: float = 0.001, device: str = "cuda", **changes: Any) -> Manifest:
    """GRPO in groups of two on a Llama of the least size: 16 samples of 8 + 8 tokens, two devices, two optimizer steps;
    three iterations behind one of warm-up."""
    fields = {
        "name": "grpo-tiny",
        "prompt_tokens": 8,
        "new_tokens": 8,
        "rollouts": 8,
        "micro_batch": 2,
        "algorithm": f"grpo:kl_coefficient={kl_coefficient}",
        "group": 2,
        "optimizer_steps": 2,
    }
    return synthetic_manifest(
        backend="nemo-rl",
        kind="trainer",
        size=LLAMA,
        workload=Workload.model_validate({**fields, **changes}),
        layout=Layout(devices_per_node=2, data=2, engine="fsdp2", zero_stage=3, generation="vllm"),
        device=device,
        precision="bf16" if device == "cuda" else "fp32",
        warmup=1,
        iterations=3,
    )


def log_recorded(path: str, steps: int, seconds: float = 0.0) -> None:
    """So many of the recorded steps, as NeMo-RL's logger is called for them; each takes so long."""
    log = told(lambda *given, **named: None, path)
    for line in (HERE / "metrics-0.7.0.jsonl").read_text().splitlines():
        call = json.loads(line)
        if call["step"] <= steps:
            time.sleep(seconds if call["finished"] else 0.0)
            log(None, call["metrics"], call["step"], prefix=call["prefix"], step_finished=call["finished"])


def recorded_steps(folder: Path) -> list[Step]:
    """All four, as they are read."""
    path = str(folder / "steps.jsonl")
    log_recorded(path, 4)
    return [step for step, _ in zip(read_steps(path), range(4), strict=False) if step is not None]


class StandIn(NemoRlTrainer):
    """NeMo-RL's reader over a program that logs, which needs no NeMo-RL, and no device."""

    def command(self, folder: str) -> list[str]:
        return [sys.executable, "-m", "tests.worker.trainers.nemo_rl.made", "program", os.environ["STAND_IN_STEPS"]]


def run_program(steps: int) -> None:
    """Look whether what a trainer is given is there, and log."""
    folder = Path(os.environ[LOG_VARIABLE]).parent
    assert "RANK" not in os.environ and "MASTER_ADDR" not in os.environ
    assert sorted(path.name for path in (folder / "model").iterdir() if path.suffix != ".jinja") == _MODEL
    print("all is there", flush=True)
    log_recorded(os.environ[LOG_VARIABLE], steps, STEP_SECONDS)


if __name__ == "__main__":
    if sys.argv.pop(1) == "program":
        run_program(int(sys.argv[1]))
    else:
        leave_process(main(find_build=lambda manifest: StandIn))
