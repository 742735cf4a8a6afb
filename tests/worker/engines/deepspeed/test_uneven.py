"""Real ranks train a Llama shape on uneven samples: the manifest's counts, and one arithmetic in every layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suite.spec.manifest import Manifest
from suite.theory.parameters import parameter_count
from suite.worker.loop import expected_counts
from tests.worker.tiny import Finished, run_tiny, tiny_manifest

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


def run(folder: Path, **layout: Any) -> tuple[Manifest, Finished]:
    manifest = tiny_manifest(2, shape=SHAPE, workload=WORK, layout=layout)
    done = run_tiny(folder, manifest)
    assert done.exit_codes == [0, 0], done.errors
    return manifest, done


@pytest.mark.ranks
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
