"""What the backends around TRL choose, refuse and say, without TRL installed."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.base import unknown_work, versions_errors
from suite.backends.registry import find_backend
from suite.conduct.planning.plan import make_plan
from suite.conduct.planning.request import Request
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutChoices, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.memory import memory_floor
from suite.worker.trainers.trl import config as worker_config

GRPO = find_workload("cpu").changed({"algorithm": "grpo", "group": 4})
RLOO = find_workload("cpu").changed({"algorithm": "rloo", "group": 4})
SIZE = find_size("1M")
CPU = Measure(device="cpu", precision="fp32")
FIELDS: dict[str, Any] = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 4, "positions": 1024}


def layout_of(workload: Workload = GRPO, backend: str = "trl-grpo", ranks: int = 2, **asked: Any) -> Layout:
    return find_backend(backend).layout(SIZE, workload, LayoutRequest(devices_per_node=ranks, **asked))


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        ({}, "zero2 dp2"),
        ({"zero_stage": 3}, "zero3 dp2 gather-gen"),
        ({"zero_stage": 3, "gather_for_generation": False}, "zero3 dp2"),
        ({"zero_stage": 3, "generation": "vllm"}, "zero3 dp2 vllm"),
        ({"engine": "deepspeed", "zero_stage": 0}, "dp2"),
        ({"engine": "ddp"}, "ddp dp2"),
        ({"engine": "fsdp2", "recompute": "full", "generation": "vllm"}, "fsdp2 dp2 recompute vllm"),
    ],
)
def test_a_layout_is_called_by_its_engine_and_shards_as_that_does(asked: dict[str, Any], label: str) -> None:
    assert layout_of(**asked).label() == label


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"engine": "ddp", "zero_stage": 2}, "--zero: DeepSpeed's, so not for --engine ddp"),
        ({"engine": "fsdp2", "offload_optimizer": True}, "--offload-optimizer: DeepSpeed's"),
        ({"engine": "fsdp2", "gather_for_generation": True}, "--gather-for-generation: DeepSpeed's"),
    ],
)
def test_what_an_engine_does_not_have_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        layout_of(**asked)


def test_fsdp2_needs_as_little_memory_as_zero_3_and_ddp_as_much_as_no_sharding() -> None:
    floors = {}
    for engine, stage in (("deepspeed", 0), ("ddp", 0), ("deepspeed", 3), ("fsdp2", 3)):
        layout = Layout(devices_per_node=4, data=4, engine=engine, zero_stage=stage)
        floors[engine, stage] = memory_floor(SIZE, GRPO, resolve_work(SIZE, GRPO, layout), layout, "bf16").bytes
    assert floors["ddp", 0] == floors["deepspeed", 0] > floors["fsdp2", 3] == floors["deepspeed", 3]


@pytest.mark.parametrize(
    ("backend", "workload", "layout", "measure", "words"),
    [
        ("trl-grpo", RLOO, {}, CPU, "trl-grpo runs grpo, and workload cpu asks for rloo: --algorithm grpo"),
        ("trl-rloo", find_workload("cpu"), {}, CPU, "trl-rloo runs rloo, and workload cpu asks for ppo"),
        ("trl-grpo", GRPO.changed({"trainable_layers": 1}), {}, CPU, "leave out --trainable-layers"),
        ("trl-grpo", GRPO, {"zero_stage": 1}, CPU, "ZeRO stages 0, 2 and 3"),
        ("trl-grpo", GRPO, {"tensor": 2, "data": 1}, CPU, "data parallel only"),
        ("trl-grpo", GRPO, {}, Measure(device="cuda", precision="fp16"), "measure fp32 and bf16"),
    ],
)
def test_what_trl_cannot_do_is_said_by_driver_and_worker(
    backend: str, workload: Workload, layout: dict[str, Any], measure: Measure, words: str
) -> None:
    made = Layout(**{"devices_per_node": 2, "data": 2, **layout})
    (error,) = find_backend(backend).errors(SIZE, workload, made, measure)
    assert words in error
    manifest = {
        "backend": {"name": backend},
        "size": SIZE.model_dump(),
        "workload": workload.model_dump(),
        "work": {"lengths": None},
        "layout": made.model_dump(),
        "measure": measure.model_dump(),
    }
    with pytest.raises(ValueError, match=r"not|all layers train|data parallel only"):
        worker_config.check(manifest)


def test_a_hydra_reference_and_uneven_lengths_are_refused() -> None:
    driver, layout = find_backend("trl-grpo"), Layout(devices_per_node=1, data=1)
    hydra = GRPO.changed({"trainable_layers": 1, "reference": "hydra"})
    assert any("full copy" in error for error in driver.errors(SIZE, hydra, layout, CPU))
    uneven = GRPO.changed({"lengths": "lognormal:mean=8,sigma=0.5,cap=16"})
    assert unknown_work(driver, uneven) == [
        "the trl-grpo backend has no responses of uneven length, which workload cpu asks for"
    ]
    assert unknown_work(driver, GRPO) == []


def test_other_families_are_refused() -> None:
    shape = Shape(name="other", architecture="opt", vocab=512, **FIELDS)
    layout = Layout(devices_per_node=1, data=1)
    assert find_backend("trl-rloo").errors(shape, RLOO, layout, CPU) == [
        "the trl backends build gpt2, llama, qwen2, qwen3 models, and other is of the opt family"
    ]


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"trl": "1.16.3", "transformers": "5.19.0"}, None),
        ({"trl": "1.12.0"}, "was made for TRL 1.16.x, and finds 1.12.0: `make trl`"),
        ({"transformers": "4.57.1"}, "needs transformers 5 or later, and finds 4.57.1"),
        ({}, None),
    ],
)
def test_another_version_is_refused(versions: dict[str, str], words: str | None) -> None:
    layout = Layout(devices_per_node=1, data=1)
    errors = versions_errors(find_backend("trl-grpo"), GRPO, layout, versions)
    assert (len(errors) == 1 and words in errors[0]) if words else not errors


def test_driver_and_worker_agree_on_what_they_were_made_for() -> None:
    from suite.backends import trl

    assert trl.TRL_VERSIONS == worker_config.VERSIONS
    assert {find_backend(name).algorithm for name in worker_config.ALGORITHMS} == {"grpo", "rloo"}


def test_engines_are_crossed_and_what_zero_cannot_be_crossed_with_is_skipped() -> None:
    request = Request(
        backends=("trl-grpo",),
        sizes=(SIZE,),
        ranks=(2,),
        workload=GRPO,
        layout=LayoutChoices(engine=("ddp", "deepspeed"), zero_stage=(2, 3)),
        measure=CPU,
        repeats=1,
    )
    plan = make_plan(request, {"trl-grpo": {}})
    assert {manifest.layout.label() for manifest in plan.manifests} == {"zero2 dp2", "zero3 dp2 gather-gen"}
    assert {skipped.reason for skipped in plan.skipped} == {"--zero: DeepSpeed's, so not for --engine ddp"}


def test_a_layout_that_says_nothing_of_an_engine_keeps_its_bytes() -> None:
    assert "engine" not in Layout(devices_per_node=1, data=1).model_dump()
    assert Layout(devices_per_node=1, data=1, engine="ddp").model_dump()["engine"] == "ddp"


def test_no_other_backend_takes_an_engine() -> None:
    request = Request(
        backends=("deepspeed",),
        sizes=(SIZE,),
        ranks=(1,),
        workload=find_workload("cpu"),
        layout=LayoutChoices(engine=("ddp",)),
        measure=CPU,
        repeats=1,
    )
    with pytest.raises(UsageError, match="--engine means nothing to deepspeed"):
        make_plan(request, {"deepspeed": {}})
