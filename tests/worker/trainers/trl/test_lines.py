"""The lines of TRL, transformers and Accelerate that hooks and docs cite hold what they are cited for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.needs import require_trl

HELD = {
    ("trl", "trainer/grpo_trainer.py"): {
        1419: "def _get_per_token_logps_and_entropies",
        1579: "def _calculate_rewards",
        1763: "def _generate_single_turn",
        2324: "def _generate_and_score_completions",
        2643: "if self.args.gradient_accumulation_steps % generate_every != 0",
        2939: "def compute_loss",
        3302: "def log",
    },
    ("trl", "generation/vllm_generation.py"): {347: "self.llm = LLM("},
    ("transformers", "trainer.py"): {
        1918: "self.optimizer.step()",
        2101: "self.accelerator.backward(loss",
        2213: "def _maybe_log_save_evaluate",
        2264: "def get_batch_samples",
        2741: "def _clip_grad_norm",
    },
    ("accelerate", "state.py"): {986: "elif self.distributed_type in [", 1016: "self.fsdp_plugin = fsdp_plugin"},
}


@pytest.mark.packages
@pytest.mark.parametrize(("package", "path"), HELD)
def test_the_source_holds_these_words_there(package: str, path: str) -> None:
    require_trl()
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    lines = (Path(spec.submodule_search_locations[0]) / path).read_text().splitlines()
    wrong = {
        number: lines[number - 1] for number, words in HELD[package, path].items() if words not in lines[number - 1]
    }
    assert not wrong
