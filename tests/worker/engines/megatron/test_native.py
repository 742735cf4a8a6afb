"""Native kernels: Transformer Engine's layers compute what megatron-core's own do, from the same weights by name.

It computes on CUDA devices alone: what runs here is megatron-core's use of it and this engine's, over a stand-in.
"""

import importlib
import json
import os
import sys
from dataclasses import replace

import pytest

from suite.worker.engines import megatron
from suite.worker.engines.megatron import native
from suite.worker.world import World
from tests.worker.engines.megatron import layouts
from tests.worker.tiny import told_by_ranks

FAMILIES = ("gpt2", "qwen2", "qwen3")
SECONDS = 500.0


def rank_program(world: World) -> None:
    seen = {}
    for family in FAMILIES:
        for kernels in ("torch", "native"):
            case = layouts.CASES[family]
            layout = {"tensor": 2, "sequence_parallel": True, "kernels": kernels}
            seen[f"{family} {kernels}"] = layouts.observe(replace(case, ranks=2, layout=layout), world)
            for name in native.ATTENTION_SWITCHES:
                del os.environ[name]  # megatron-core sets them, and takes no other value after that
    print(json.dumps(seen))


@pytest.mark.ranks
@pytest.mark.thorough
@pytest.mark.timeout(SECONDS)
def test_the_same_names_get_the_same_weights_and_give_the_same_numbers(tmp_path):
    stub = "tests.worker.engines.megatron.stub_transformer_engine"
    for seen in told_by_ranks([stub], 2, tmp_path, SECONDS):
        for family in FAMILIES:
            plain, fused = seen[f"{family} torch"], seen[f"{family} native"]
            assert layouts.apart(fused["logprobs"], fused["expected"]) < 1e-4
            for field in ("logprobs", "values", "cached", "reference", "logprobs_trained"):
                if plain[field] is not None:
                    assert layouts.apart(fused[field], plain[field]) < 2e-5, (family, field)
            for field in ("moved", "total", "trainable", "exported", "checkpoint"):
                assert fused[field] == plain[field], (family, field)
            assert fused["drawn"] == pytest.approx(plain["drawn"], abs=1e-9)
            for ours, theirs in zip(fused["steps"], plain["steps"], strict=True):
                assert ours == pytest.approx(theirs, rel=2e-5)
            notes = fused["notes"]
            norm = "LayerNorm" if family == "gpt2" else "RMSNorm"
            assert f"Transformer Engine 2.11.0: linear layers with their {norm} fused" in notes[0]
            assert "cuDNN's fused kernels through Transformer Engine" in notes[1]
            assert f"gradient norm and clipping: multi-tensor kernels of {stub}" in notes
            assert any(note.startswith(f"optimizer: {stub}.FusedAdam") for note in notes)


def test_torch_kernels_are_torchs_where_transformer_engine_is_installed(monkeypatch):
    installed = {name: sys.modules.get(name, sys) for name in ("transformer_engine", "apex", "amp_C")}
    for name, module in installed.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "transformer_engine_torch", sys)
    megatron.choose_kernels("native")
    assert {name: sys.modules[name] for name in installed} == installed
    megatron.choose_kernels("torch")
    for name in installed:
        with pytest.raises(ImportError):
            importlib.import_module(name)


def test_what_native_kernels_lack_in_this_process_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
    with pytest.raises(ValueError, match="need Transformer Engine beside megatron-core, and it cannot be imported"):
        native.require()
    monkeypatch.setenv("NVTE_FLASH_ATTN", "1")
    with pytest.raises(ValueError, match="NVTE_FLASH_ATTN is 1 in the environment, and megatron-core would set it to"):
        native.require()
