"""Lines of trlx that docs and docstrings cite: each is listed here with words that it holds in trlx's source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suite.worker.trainers.trlx import source as trlx_source

ROOT = Path(__file__).resolve().parents[4]
CITING = [
    ROOT / "docs" / "backends.md",
    *sorted((ROOT / "suite" / "backends").glob("trlx*.py")),
    *sorted((ROOT / "suite" / "worker" / "trainers" / "trlx").rglob("*.py")),
]
FILES = {
    "TP": "trainer/nemo_ppo_trainer.py",
    "MP": "models/modeling_nemo_ppo.py",
    "base": "trainer/accelerate_base_trainer.py",
    "line": "trainer/accelerate_ppo_trainer.py",
}
CITED = re.compile(r"\b(TP|MP):([\d-]+)|\b(base|line) (\d+)", re.IGNORECASE)
# what the line holds; of a range, its first line and its last
HELD = {
    "TP:61": "configs",
    "TP:69-101": "world_size = megatron_cfg.trainer.num_nodes; min(megatron_cfg.trainer.max_steps",
    "TP:149": "def make_experience",
    "TP:179": "self.model.generate(",
    "TP:196": "self.reward_fn(",
    "TP:222": "/ 8) * 8",
    "TP:257": "pad(response_tensor, (0, 1)",
    "TP:367": "configure_optimizers()",
    "TP:399": "self.model.offload_reference_model()",
    "TP:406": "self.model._optimizer.step()",
    "TP:440": "self.model.validation_step(",
    "MP:182": "p._ref_data = p.data.clone().cpu().pin_memory()",
    "MP:183": "p._policy_data = p.data",
    "MP:234": "p.data = p._policy_data.to(torch.cuda.current_device())",
    "MP:237": "def offload_policy_model",
    "MP:242": 'p._policy_data = p.data.to("cpu", non_blocking=True)',
    "MP:516": "m.layer_number < (self.cfg.num_layers - self.num_layers_unfrozen)",
    "MP:652": "def training_step",
    "MP:931": "def parameters",
    "MP:934": "def offload_reference_model",
    "MP:1075": "t.float()",
    "MP:1095": "def infer_logprobs_and_values",
    "MP:1129": "policy_stage_output = fwd_bwd_func(",
    "MP:1138": "ref_stage_output = fwd_bwd_func(",
    "MP:1143": "dtype=self.autocast_dtype",
    "MP:1158": "def generate",
    "MP:1169": '"repetition_penalty": 1.2',
    "base 203": "def decode",
    "base 256": "def generate",
    "base 284": "def save_pretrained",
    "base 309": "def save",
    "base 339": "def evaluate",
    "base 574": "self.accelerator.backward(loss)",
    "base 585": "self.opt.step()",
    "line 127": "def loss",
    "line 251": "def make_experience",
    "line 285": "self.generate(",
    "line 346": "self.tokenizer(",
    "MP:953": "pad_by = ceil(inputs.shape[1] / 8) * 8",
}


def lines_of(cited: str) -> list[str]:
    """The named line, or a range's first and last."""
    kind, numbers = re.split(r"[: ]", cited)
    source = trlx_source._package_folder()
    assert source is not None
    text = (Path(source) / FILES[kind]).read_text().splitlines()
    return [text[int(number) - 1] for number in numbers.split("-")]


@pytest.mark.parametrize("citing", CITING, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_cited_line_is_listed(citing: Path) -> None:
    named = {
        f"{one[1].upper()}:{one[2]}" if one[1] else f"{one[3].lower()} {one[4]}"
        for one in CITED.finditer(citing.read_text())
    }
    assert named <= set(HELD)


@pytest.mark.trlx
def test_the_source_holds_these_words_there() -> None:
    for cited, words in HELD.items():
        for line, word in zip(lines_of(cited), words.split("; "), strict=True):
            assert word in line, cited


def test_the_hooks_cite_lines() -> None:
    """Else the search above would look at the wrong files."""
    cited = [path for path in CITING if CITED.search(path.read_text())]
    assert len(cited) >= 4
