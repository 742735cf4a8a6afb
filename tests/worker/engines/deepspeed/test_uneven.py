"""Real ranks train rotary shapes on uneven samples: the manifest's counts, and one arithmetic in every layout.

Run as a script this file is one rank: ``python -m tests.worker.engines.deepspeed.test_uneven`` runs ``CASES`` in turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.spec.manifest import Manifest
from suite.theory.adapters import work_parameters
from suite.theory.parameters import parameter_count
from suite.worker.loop import expected_counts
from tests.worker.tiny import ROOT, Finished, clean_environment, run_tiny, tiny_manifest

#: wide enough for weights that ZeRO-3 does not keep whole (1e5 elements)
SHAPE: dict[str, Any] = {
    "architecture": "llama",
    "hidden": 192,
    "ffn": 600,
    "heads": 6,
    "kv_heads": 2,
    "vocab": 600,
    "tied_embeddings": False,
    "rope_theta": 5e5,
}
WORK: dict[str, Any] = {
    "lengths": "lognormal:mean=4,sigma=0.6,cap=8",
    "prompt_lengths": "lognormal:mean=5,sigma=0.4,cap=8",
    "optimizer_steps": 2,
    "reward": {"kind": "token-below", "threshold": 300},
    # an epsilon that leaves gradients of nothing but rounding without a step
    "optimizer": {"learning_rate": 1e-2, "epsilon": 1e-3},
}


_UNEVEN = {name: WORK[name] for name in ("lengths", "prompt_lengths")}
_CHAT = {**_UNEVEN, "lora_rank": 3, "critic": {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}}
_HYDRA = {**_UNEVEN, "trainable_layers": 1, "reference": "hydra"}
_QWEN3 = {"architecture": "qwen3", "head_width": 40}
#: one rank, one process: what else a policy can be
CASES: dict[str, dict[str, Any]] = {
    "hydra": {"layout": {"zero_stage": 3, "packing": True, "recompute": "full"}, "workload": _HYDRA},
    "chat padded": {"layout": {"zero_stage": 2}, "workload": _CHAT},
    "chat packed": {"layout": {"zero_stage": 3, "packing": True, "recompute": "full"}, "workload": _CHAT},
    "groups": {
        "shape": _QWEN3,
        "layout": {"zero_stage": 3, "gather_for_generation": True},
        "workload": {**_UNEVEN, "algorithm": "grpo:kl_coefficient=0.01", "group": 2},
        "measure": {"precision": "bf16"},
    },
}


def manifest_of(case: str) -> Manifest:
    asked = CASES[case]
    return tiny_manifest(stack={}, **{**asked, "shape": {**SHAPE, **asked.get("shape", {})}})


def rank_program() -> None:
    import torch

    from suite.worker.engines import engine_class
    from suite.worker.loop import Loop
    from suite.worker.rank import RankIdentity
    from suite.worker.recorder import NullRecorder
    from suite.worker.world import join

    torch.set_num_threads(1)
    world = join(RankIdentity(0, 1, 0, 1), "cpu", 60.0)
    told = {}
    for case in CASES:
        manifest = manifest_of(case).model_dump(mode="json", by_alias=True)
        engine = engine_class("deepspeed", "cpu")(manifest, world)
        loop = Loop(engine, manifest)
        iterations = [loop.run_iteration(iteration, NullRecorder()) for iteration in range(2)]
        told[case] = {
            "parameters": [engine.total_parameters, engine.trainable_parameters],
            "stats": [stats for _, stats in iterations],
            "precisions": sorted({str(parameter.dtype) for parameter in engine._policy.parameters()}),
            "rotary": sorted({str(buffer.dtype) for buffer in engine._policy.buffers()}),
        }
    print(json.dumps(told))


@pytest.mark.ranks
@pytest.mark.thorough  # test_chat and test_engine count them in every round, with even samples
@pytest.mark.timeout(200)
def test_adapters_critics_branches_and_groups_train_the_parameters_that_the_theory_counts() -> None:
    command = [sys.executable, "-m", "tests.worker.engines.deepspeed.test_uneven"]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for case, seen in told.items():
        manifest = manifest_of(case)
        held = work_parameters(manifest.size, manifest.workload)
        assert seen["parameters"] == [held.total, held.trainable], case
        precision = {"fp32": "torch.float32", "bf16": "torch.bfloat16"}[manifest.measure.precision]
        assert (seen["precisions"], seen["rotary"]) == ([precision], ["torch.float32"]), case
        first, last = seen["stats"]
        assert first["kl"] == pytest.approx(0.0, abs=1e-4) and last["kl"] != 0.0, case
    for padded, packed in zip(told["chat padded"]["stats"], told["chat packed"]["stats"], strict=True):
        assert packed["loss"] == pytest.approx(padded["loss"], rel=1e-3)


def run(folder: Path, **layout: Any) -> tuple[Manifest, Finished]:
    manifest = tiny_manifest(2, shape=SHAPE, workload=WORK, layout=layout)
    done = run_tiny(folder, manifest)
    assert done.exit_codes == [0, 0], done.errors
    return manifest, done


@pytest.mark.ranks
@pytest.mark.thorough  # test_families_agreement compares padded and packed batches in every round
@pytest.mark.timeout(200)
def test_padded_under_zero_2_and_packed_under_zero_3_are_the_same_iterations(tmp_path: Path) -> None:
    told = []
    for name, layout in {"padded": {"zero_stage": 2}, "packed": {"zero_stage": 3, "packing": True}}.items():
        manifest, done = run(tmp_path / name, **layout)
        body = json.loads(manifest.model_dump_json(by_alias=True))
        held = parameter_count(manifest.size).with_value_head
        wanted = {
            **expected_counts(body["workload"], body["work"]),
            "total_parameters": held,
            "trainable_parameters": held,
        }
        for event in done.events(kind="iteration"):
            assert wanted.items() <= event["counts"].items()
            assert (event["counts"]["padded_tokens"] > 0) == (name == "padded")
        notes = done.events(kind="environment")[0]["facts"]["notes"]
        assert any(note.startswith("packed rows") for note in notes) == (name == "packed")
        told.append([event["stats"] for event in done.events(kind="iteration")])
    assert told[0][0]["kl"] == pytest.approx(0.0, abs=1e-5)
    for padded, packed in zip(*told, strict=True):
        for each, number in padded.items():
            assert packed[each] == pytest.approx(number, rel=1e-3, abs=1e-5), each
    assert told[0][0]["value_loss"] != pytest.approx(told[0][-1]["value_loss"], rel=1e-2)


if __name__ == "__main__":
    rank_program()
