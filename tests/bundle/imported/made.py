"""Logs as verl and NeMo-RL print them, written after the forms of their own code; no figure in them was measured."""

import json
import tempfile
from pathlib import Path

from suite.bundle.imported.record import Told
from suite.bundle.imported.store import ImportFolder, import_log

#: Of one step: 16 samples of 100 and 300 tokens in 10 s.
VERL_STEP = {
    "actor/pg_loss": 0.01,
    "perf/max_memory_allocated_gb": 30.5,
    "actor/perf/max_memory_reserved_gb": 40.0,
    "prompt_length/mean": 100.0,
    "response_length/mean": 300.0,
    "timing_s/generate_sequences": 3.5,
    "timing_s/gen": 4.0,
    "timing_s/reward": 0.5,
    "timing_s/old_log_prob": 1.0,
    "timing_s/ref": 1.0,
    "timing_s/adv": 0.1,
    "timing_s/update_actor": 3.0,
    "timing_s/step": 10.0,
    "perf/total_num_tokens": 6400,
    "perf/throughput": 80.0,
}
NEMO_TIMERS = {
    "generation": 4.0,
    "policy_training": 3.0,
    "policy_and_reference_logprobs": 1.5,
    "prepare_for_generation/total": 0.5,
    "prepare_for_generation/transfer_and_update_weights": 0.3,
    "reward_calculation": 0.1,
    "data_processing": 0.2,
}
TOLD = Told(model="Qwen/Qwen3-8B", devices=8)
#: Lines that SkyRL's and AReaL's own loggers printed (docs/import.md): four steps of 16 samples of 8 and 8 tokens.
PRINTED = {path.name.partition("-")[0]: path.read_text() for path in Path(__file__).parent.glob("logs/*.log")}


def verl_console(steps: int = 3, prefix: str = "", **changed: object) -> str:
    """``prefix``: what Ray puts before each line."""
    lines = ["{'trainer': {'project_name': 'x'}}", "step:0 - val-core/gsm8k/reward/mean@1:0.25"]
    for number in range(1, steps + 1):
        values = {**VERL_STEP, **changed}
        lines.append(" - ".join([f"step:{number}", *(f"{name}:{value}" for name, value in values.items())]))
        lines.append(f"Training Progress: {number}/{steps}")
    return "".join(f"{prefix}{line}\n" for line in lines)


def verl_tracker(steps: int = 3) -> str:
    lines = [{"step": number, "data": {**VERL_STEP, "text": "x"}} for number in range(1, steps + 1)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def nemo_console(steps: int = 3, epochs: int = 1) -> str:
    lines = []
    for epoch in range(1, epochs + 1):
        lines.append(f"\n{'=' * 25} Epoch {epoch}/{epochs} {'=' * 25}")
        for number in range(1, steps + 1):
            lines += [f"\n{'=' * 25} Step {number}/{steps} {'=' * 25}", "\N{BULLET} Preparing batch"]
            lines += ["Training Results:", "  \N{BULLET} Loss: 0.0100", "  \N{BULLET} Mean Generation Length: 300.0000"]
            lines += ["Timing:", "  \N{BULLET} Total step time: 10.00s"]
            lines += [f"  \N{BULLET} {name}: {value:.2f}s ({10 * value:.1f}%)" for name, value in NEMO_TIMERS.items()]
            lines += ["  \N{BULLET} Training FLOPS: 12.00 TFLOPS (1.50 TFLOPS per rank)"]
    return "\n".join(lines) + "\n"


def nemo_tracker(steps: int = 3) -> str:
    values = {f"timing/train/{name}": value for name, value in NEMO_TIMERS.items()}
    values |= {"timing/train/total_step_time": 10.0, "train/total_turns": 16.0, "train/avg_turns_per_sample": 1.0}
    values |= {"train/mean_prompt_length": 100.0, "train/mean_gen_tokens_per_sample": 300.0}
    values |= {"train/total_num_tokens": 6400.0, "validation/accuracy": 0.5}
    return json.dumps(
        {name: {str(step): value for step in range(1, steps + 1)} for name, value in values.items()}, indent=2
    )


def imported(root: Path, text: str | None = None, told: Told = TOLD, warmup: int = 0) -> ImportFolder:
    """A folder below ``root`` of a verl log."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "train.log")
        log.write_text(verl_console() if text is None else text)
        return import_log(log, "verl", told, warmup, root)
