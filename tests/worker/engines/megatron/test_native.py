"""Native kernels: Transformer Engine's layers compute what megatron-core's own do, from the same weights by name.

Transformer Engine computes on CUDA devices alone. What runs here is megatron-core's use of it and this engine's, over a
stand-in of its modules (stub_transformer_engine.py, which as a script is the program of one rank).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from suite.launch.ports import free_port
from suite.worker.engines import megatron
from suite.worker.engines.megatron import native
from suite.worker.engines.megatron.engine import MegatronEngine
from suite.worker.world import World
from tests.worker.engines.megatron import test_families as families
from tests.worker.engines.megatron import test_layouts as layouts
from tests.worker.tiny import ROOT, clean_environment, rank_environment

CASES = {
    "torch": {"tensor": 2, "sequence_parallel": True},
    "native": {"tensor": 2, "sequence_parallel": True, "kernels": "native"},
}
FAMILIES = ("qwen2", "qwen3")


def rank_program(folder: Path) -> None:
    from suite.worker.engines.megatron.stack import parallel_state
    from suite.worker.rank import read_rank
    from suite.worker.world import join

    torch.set_num_threads(1)
    world = join(read_rank(os.environ), "cpu", 60.0)
    native.refusal = lambda _device, _precision: None
    seen = {}
    for case, layout in CASES.items():
        layouts.CASES[case] = (2, {"layout": layout})
        families.CASES.update({family: (2, family, layout) for family in FAMILIES})
        seen[case] = layouts.observe(case, world)
        parallel_state.destroy_model_parallel()
        for family in FAMILIES if case == "native" else ():
            seen[family] = families.observe(family, world)
            parallel_state.destroy_model_parallel()
        for name in native.ATTENTION_SWITCHES:
            del os.environ[name]  # megatron-core sets them, and takes no other value after that
    (folder / f"{world.rank}.json").write_text(json.dumps(seen))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder, port = tmp_path_factory.mktemp("native"), free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.worker.engines.megatron.stub_transformer_engine", str(folder)],
            cwd=ROOT,
            env={**clean_environment(), **rank_environment(rank, 2, port)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=100)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(one[-3000:] for one in errors)
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return {case: [rank[case] for rank in ranks] for case in (*CASES, *FAMILIES)}


pytestmark = pytest.mark.timeout(150)


@pytest.mark.ranks
@pytest.mark.thorough
def test_the_same_names_get_the_same_weights_and_give_the_same_numbers(seen: Any) -> None:
    for plain, fused in zip(seen["torch"], seen["native"], strict=True):
        for field in ("logprobs", "values", "cached", "reference", "logprobs_trained"):
            if plain[field] is not None:
                assert layouts.close(fused[field], plain[field], 1e-5), field
        assert fused["moved"] == plain["moved"]
        assert (fused["total"], fused["trainable"]) == (plain["total"], plain["trainable"])
        for ours, theirs in zip(fused["steps"], plain["steps"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.ranks
@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_are_hugging_faces_with_these_layers_too(seen: Any, family: str) -> None:
    for rank in seen[family]:
        assert layouts.close(rank["logprobs"], rank["expected"], 1e-4)
        assert all(rank["exported"].values()) and sorted(rank["exported"]) == rank["checkpoint"]
        assert rank["cached"] is None or layouts.close(rank["cached"], rank["logprobs"], 1e-5)
        assert rank["steps"][-1]["loss"] < rank["steps"][0]["loss"] - 0.01


@pytest.mark.ranks
@pytest.mark.thorough
def test_notes_name_whose_kernels_run(seen: Any) -> None:
    stub = "tests.worker.engines.megatron.stub_transformer_engine"
    for rank in seen["native"]:
        assert "Transformer Engine 2.11.0: linear layers with their LayerNorm fused" in rank["notes"][0]
        assert "cuDNN's fused kernels through Transformer Engine" in rank["notes"][1]
        assert f"gradient norm and clipping: multi-tensor kernels of {stub}" in rank["notes"]
        assert any(note.startswith(f"optimizer: {stub}.FusedAdam") for note in rank["notes"])


def test_torch_kernels_are_torchs_where_transformer_engine_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("device", "precision", "words"),
    [
        ("cpu", "bf16", "computes on CUDA devices alone; use torch kernels"),
        ("cuda", "fp32", "native kernels have no fp32"),
        (
            "cuda",
            "bf16",
            "NVTE_FLASH_ATTN is 1 in the environment, and megatron-core would set it to 0; unset it for native kernels",
        ),
        ("cuda", "fp16", "need Transformer Engine beside megatron-core, and it cannot be imported"),
    ],
)
def test_native_kernels_are_refused_with_one_reason(
    device: str, precision: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
    if precision == "bf16":
        monkeypatch.setenv("NVTE_FLASH_ATTN", "1")
    manifest = layouts.manifest_of("one")
    manifest["layout"]["kernels"], manifest["measure"]["precision"] = "native", precision
    with pytest.raises(ValueError, match=words) as refusal:
        MegatronEngine(manifest, World(0, 1, 0, 1, torch.device(device)))
    assert "\n" not in str(refusal.value)
