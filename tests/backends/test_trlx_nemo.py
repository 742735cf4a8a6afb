"""What the driver of trlx-nemo chooses and refuses, without NeMo."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from suite.backends.registry import find_backend
from suite.backends.trlx_nemo import TrlxNemo, shipped_tensor, trained_positions
from suite.spec.catalogue import find_size, find_workload, sizes
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.presets import find_preset
from suite.spec.resolve import layout_errors, resolve_work
from suite.spec.workload import Workload

DRIVER = TrlxNemo()
WORKLOAD = find_workload("trlx-ds-chat")
CUDA = Measure(device="cuda", precision="bf16")
ONE = Layout(devices_per_node=1, data=1, distributed_optimizer=True)


def changed(**changes: Any) -> Workload:
    return Workload.model_validate({**WORKLOAD.model_dump(), **changes})


def test_it_is_a_trainer_with_an_image_of_its_own() -> None:
    driver = find_backend("trlx-nemo")
    assert (driver.kind, driver.name) == ("trainer", "trlx-nemo")
    assert TrlxNemo.image == "nemo"
    assert driver.variables(CUDA) == {"WANDB_MODE": "disabled"}
    assert driver.worker_argv("m.json", "bundle") == ("-m", "suite.worker", "m.json", "--bundle", "bundle")


@pytest.mark.parametrize("preset", ["trlx-ds-chat", "ladder"])
def test_every_size_of_a_preset_is_laid_out_as_trlx_ships_it(preset: str, snapshot: SnapshotAssertion) -> None:
    rows = []
    for point in find_preset(preset).points:
        size, workload = find_size(point.size), find_preset(preset).work_of(point)
        layout = DRIVER.layout(size, workload, LayoutRequest(nodes=point.nodes, devices_per_node=8))
        assert layout_errors(size, workload, layout) + DRIVER.errors(size, workload, layout, CUDA) == []
        work = resolve_work(size, workload, layout)
        rows.append(
            f"{size.name}: {layout.nodes} nodes, {layout.label()}; {work.global_rollouts} rollouts "
            f"({work.replica_rollouts} a replica), batch {work.replica_batch}, micro batch {work.micro_batch}, "
            f"{workload.optimizer_steps} steps, trains {workload.trainable_layers or 'all'}"
        )
    assert rows == snapshot


def test_a_size_that_trlx_does_not_ship_is_not_split() -> None:
    assert (shipped_tensor(find_size("13B")), shipped_tensor(find_size("13B-trlx"))) == (2, 2)
    assert shipped_tensor(find_size("350M")) == 1


@given(
    name=st.sampled_from(sorted(sizes("true") | sizes("trlx"))),
    nodes=st.sampled_from([1, 2, 4]),
    tensor=st.none() | st.integers(1, 16),
    sequence=st.none() | st.booleans(),
)
@settings(max_examples=80)
def test_a_layout_is_the_world_or_a_reason(name: str, nodes: int, tensor: int | None, sequence: bool | None) -> None:
    request = LayoutRequest(nodes=nodes, devices_per_node=8, tensor=tensor, sequence_parallel=sequence)
    try:
        layout = DRIVER.layout(find_size(name), WORKLOAD, request)
    except ValueError as error:
        assert "do not divide" in str(error) or "tensor parallel of at least 2" in str(error)
        return
    assert layout.tensor * layout.data == layout.ranks == nodes * 8
    assert layout.tensor == (tensor or shipped_tensor(find_size(name)))
    if layout.sequence_parallel and not DRIVER.errors(find_size(name), WORKLOAD, layout, CUDA):
        assert trained_positions(WORKLOAD) % layout.tensor == 0


@pytest.mark.parametrize(
    ("layout", "workload", "measure", "words"),
    [
        ({"pipeline": 2, "devices_per_node": 2}, {}, {}, "leave --pp out"),
        ({"zero_stage": 2}, {}, {}, "belong to the DeepSpeed backends"),
        ({"devices_per_node": 3, "tensor": 3, "sequence_parallel": True}, {}, {}, "--no-sequence-parallel"),
        ({}, {"trainable_layers": 0}, {}, "--trainable-layers 1"),
        ({}, {"new_tokens": 1}, {}, "force at least 2 tokens"),
        ({}, {"trainable_layers": 4, "reference": "hydra"}, {}, "--reference full"),
        ({}, {"reward": {"kind": "token-below", "threshold": 9}}, {}, "token-below"),
        ({}, {"new_tokens": 1792}, {}, "2056 positions a sample, more than the 2048"),
        ({}, {}, {"device": "cpu"}, "--device cuda"),
        ({}, {}, {"precision": "fp16"}, "--precision bf16"),
    ],
)
def test_what_trlx_or_nemo_cannot_do_is_one_line_that_names_the_way_out(
    layout: dict[str, Any], workload: dict[str, Any], measure: dict[str, Any], words: str
) -> None:
    laid = Layout(**{**ONE.model_dump(), **layout})
    errors = DRIVER.errors(find_size("1.3B"), changed(**workload), laid, CUDA.model_copy(update=measure))
    assert len(errors) == 1 and words in errors[0] and "\n" not in errors[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"architecture": "llama"}, "llama family"), ({"tied_embeddings": False}, "not tied"), ({"kv_heads": 4}, "has 4")],
)
def test_another_model_than_gpt_is_refused(change: dict[str, Any], words: str) -> None:
    (error,) = DRIVER.errors(find_size("1.3B").model_copy(update=change), WORKLOAD, ONE, CUDA)
    assert words in error


def test_more_trainable_layers_than_layers_and_heads_that_do_not_divide_are_told_by_the_rules_for_all() -> None:
    split = Layout(devices_per_node=3, tensor=3, data=1)
    errors = layout_errors(find_size("13B"), changed(trainable_layers=41), split)
    assert any("40 heads" in error for error in errors) and any("41 trainable layers" in error for error in errors)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"nemo_toolkit": "1.18.0"}, "1.17.0 only, not 1.18.0"),
        ({"pytorch-lightning": "2.0.7"}, "1.9, not 2.0.7"),
        ({"apex": "0.9.10.dev0"}, "another project than NVIDIA's apex"),
        ({"transformers": "4.35.0"}, "transformers 4.35.0 is too new for trlx's own model code"),
        ({}, None),
    ],
)
def test_a_release_that_does_not_fit_is_told_before_nemo_would(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str], words: str | None
) -> None:
    good = dict.fromkeys(DRIVER.packages, "1")
    good |= {"nemo_toolkit": "1.17.0", "pytorch-lightning": "1.9.4", "apex": "0.1"}
    monkeypatch.setattr("suite.backends.trlx_nemo.stack_versions", lambda python, packages: good | found)
    monkeypatch.setattr("suite.backends.trlx_nemo.trlx_errors", lambda python: [])
    errors = DRIVER.stack_errors("python")
    assert errors == [] if words is None else words in errors[0]
