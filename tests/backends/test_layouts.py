"""What each backend lays out where a user leaves the choice to it, and how a layout is called."""

from typing import Any

import pytest

from suite.backends.registry import find_backend
from suite.conduct.planning.plan import Plan
from suite.spec.base import UsageError
from suite.spec.catalogue import find_preset, find_size
from suite.spec.layout import Layout, LayoutChoices, LayoutRequest
from suite.spec.resolve import layout_errors, resolve_work
from tests.backends.asked import CPU, CUDA, GIB, layout_of, size_of, work_of
from tests.conduct.requests import make_plan, request

ENGINES = ("deepspeed", "megatron")
MOE = find_size("1M-moe")
SPLIT: dict[str, Any] = {"placement": "split", "generation_ranks": 1}


@pytest.mark.parametrize(
    ("backend", "asked", "label"),
    [
        ("trl-grpo", {}, "zero2 dp2"),
        ("trl-grpo", {"zero_stage": 3}, "zero3 dp2 gather-gen"),
        ("trl-grpo", {"zero_stage": 3, "gather_for_generation": False}, "zero3 dp2"),
        ("trl-grpo", {"zero_stage": 3, "generation": "vllm"}, "zero3 dp2 vllm"),
        ("trl-grpo", {"engine": "ddp"}, "ddp dp2"),
        ("trl-grpo", {"engine": "fsdp2", "recompute": "full", "generation": "vllm"}, "fsdp2 dp2 recompute vllm"),
        ("trl-ppo", {}, "zero2 dp2"),
        ("trl-ppo", {"engine": "ddp"}, "ddp dp2"),
        ("trl-ppo", {"zero_stage": 3}, "zero3 dp2 gather-gen"),
        ("trlx-deepspeed", {"zero_stage": 0}, "dp2"),
        ("trlx-ddp", {"size": find_size("66B")}, "dp2"),
        ("verl", {}, "fsdp2 dp2 vllm"),
        ("verl", {"sampler": "fast"}, "fsdp2 dp2 vllm fast sampler"),
        ("nemo-rl", {}, "fsdp2 dp2 vllm"),
        ("openrlhf", {}, "zero2 dp2 vllm"),
        ("openrlhf", {"ranks": 3, "staleness": 1, **SPLIT}, "zero2 dp2 vllm split g1 async1"),
        ("megatron", {"tensor": 2}, "tp2 sp dist-opt"),
        ("megatron", {"tensor": 2, "sequence_parallel": False}, "tp2 dist-opt"),
        ("megatron", {"kernels": "native"}, "dp2 dist-opt native kernels"),
        ("megatron", {"size": MOE, "ranks": 4}, "dp4 dist-opt"),
        ("megatron", {"size": MOE, "ranks": 4, "expert": 2}, "dp4 dist-opt ep2"),
        ("megatron", {"size": MOE, "ranks": 4, "device_memory_bytes": 1}, "dp4 dist-opt ep4"),  # not by tensors
        ("deepspeed", {"generation": "vllm", "engine_sleep": True}, "zero2 dp2 vllm sleep"),
        ("deepspeed", {"packing": True, "balance": True}, "zero2 dp2 packed balanced"),
        ("deepspeed", {"generation": "vllm", "engine_memory": 40}, "zero2 dp2 vllm mem40%"),
        ("trlx-deepspeed", {"bucket_elements": 5000}, "zero2 dp2 bucket5000"),
        ("deepspeed", {"offload_parameters": True}, "zero3 dp2 offload-param"),
    ],
)
def test_a_layout_is_called_by_what_was_chosen(backend: str, asked: dict[str, Any], label: str) -> None:
    assert layout_of(backend, **asked).label() == label


@pytest.mark.parametrize("backend", ENGINES)
def test_what_is_not_asked_for_is_not_written_so_that_old_hashes_stay(backend: str) -> None:
    asked = {"packing": True, "balance": True, "generation": "vllm", "engine_sleep": True, "engine_memory": 40}
    others = {"engine", "sampler", "staleness", "bucket_elements"}
    assert layout_of(backend).model_dump().keys().isdisjoint({*asked, *others})
    assert layout_of(backend, **asked).model_dump().items() >= asked.items()


@pytest.mark.parametrize(("size", "stage"), [("1.3B", 2), ("6.7B", 3), ("66B", 3)])
def test_deepspeed_takes_the_stage_that_deepspeed_chat_takes_and_trlx_the_same(size: str, stage: int) -> None:
    own, trlx = (layout_of(name, 8, size=find_size(size)) for name in ("deepspeed", "trlx-deepspeed"))
    assert (own.zero_stage, own.data) == (stage, 8)
    # trlx's own generate always gathers layer by layer
    assert own.model_copy(update={"gather_for_generation": False}) == trlx


@pytest.mark.parametrize("backend", ["deepspeed", "trlx-deepspeed"])
def test_zero_3_is_for_several_ranks_where_models_are_large_or_zero_2_leaves_no_room(backend: str) -> None:
    def stage(size: str, devices: int, gib: int | None = None, **switches: bool) -> int:
        memory = None if gib is None else gib * GIB
        return layout_of(backend, devices, size=find_size(size), device_memory_bytes=memory, **switches).zero_stage

    assert stage("6.7B", 1) == stage("6.7B", 1, 80) == stage("6.7B", 1, 80, offload_optimizer=True) == 2
    assert stage("2.7B", 2, 80) == 2, "states of 26 GiB"
    assert stage("2.7B", 2, 36) == 3, "no room in 25 of 36 GiB"


@pytest.mark.parametrize(
    ("size", "gib", "asked", "gathers"),
    [
        ("6.7B", 80, {}, True),
        ("66B", 80, {}, False),
        ("6.7B", 24, {}, False),
        ("66B", None, {}, True),  # nobody knows
        ("6.7B", 24, {"ranks": 1}, True),  # it has the weights whole: a scaling curve goes on from it
        ("6.7B", None, {"offload_parameters": True}, False),  # weights that wait in host memory
        ("6.7B", None, {"offload_parameters": True, "gather_for_generation": True}, True),
        ("6.7B", 80, {"gather_for_generation": False}, False),
        ("6.7B", None, {"zero_stage": 2}, False),
        ("1M-llama", None, {"ranks": 3, **SPLIT}, False),  # ranks that train hand their weights over
    ],
)
def test_deepspeed_gathers_for_generation_where_the_weights_fit_or_a_user_says_so(size, gib, asked, gathers):
    memory = None if gib is None else gib * GIB
    request = {"ranks": 8, "zero_stage": 3, "size": find_size(size), "device_memory_bytes": memory, **asked}
    assert layout_of("deepspeed", **request).gather_for_generation is gathers


def test_megatron_takes_the_smallest_tensor_degree_that_leaves_room() -> None:
    sizes = [find_size(size) for size in ("1.3B", "6.7B", "13B", "20B")]
    degrees = [layout_of("megatron", 8, size=size, device_memory_bytes=80 * GIB).tensor for size in sizes]
    assert degrees == sorted(degrees) and degrees[0] == 1 and degrees[-1] > 1
    assert layout_of("megatron", 8, size=find_size("20B")).tensor == 1, "an unknown device decides nothing"
    # no more than its heads
    assert layout_of("megatron", 8, size=size_of("megatron", heads=4, kv_heads=4), device_memory_bytes=1).tensor == 4


def test_uneven_samples_are_padded_for_sequence_parallelism_not_refused() -> None:
    driver, size, request = find_backend("megatron"), size_of("megatron"), LayoutRequest(devices_per_node=2, tensor=2)
    even = work_of("megatron", new_tokens=15, prompt_tokens=16)
    uneven = work_of("megatron", lengths={"kind": "list", "listed": [3, 15]}, prompt_tokens=16)
    assert not driver.layout(size, even, request).sequence_parallel
    layout = driver.layout(size, uneven, request)
    assert layout.sequence_parallel and layout_errors(size, uneven, layout) == []


@pytest.mark.parametrize("preset", ["trlx-ds-chat", "ladder"])
def test_every_size_of_a_preset_is_laid_out_as_trlx_ships_it(preset, snapshot):
    driver, rows = find_backend("trlx-nemo"), []
    for point in find_preset(preset).points:
        size, workload = find_size(point.size), find_preset(preset).work_of(point)
        layout = driver.layout(size, workload, LayoutRequest(nodes=point.nodes, devices_per_node=8))
        assert layout_errors(size, workload, layout) + driver.errors(size, workload, layout, CUDA) == []
        work = resolve_work(size, workload, layout)
        rows.append(
            f"{size.name}: {layout.nodes} nodes, {layout.label()}; {work.global_rollouts} rollouts "
            f"({work.replica_rollouts} a replica), batch {work.replica_batch}, micro batch {work.micro_batch}, "
            f"{workload.optimizer_steps} steps, trains {workload.trainable_layers or 'all'}"
        )
    assert rows == snapshot


def test_engines_are_crossed_and_what_zero_cannot_be_crossed_with_is_skipped() -> None:
    def planned(backend: str, **choices: Any) -> Plan:
        asked = {"backends": (backend,), "ranks": (2,), "workload": work_of(backend), "measure": CPU}
        return make_plan(request(**asked, layout=LayoutChoices(**choices)), {backend: {}})

    plan = planned("trl-grpo", engine=("ddp", "deepspeed"), zero_stage=(2, 3))
    assert {manifest.layout.label() for manifest in plan.manifests} == {"zero2 dp2", "zero3 dp2 gather-gen"}
    assert {skipped.reason for skipped in plan.skipped} == {"--zero: DeepSpeed's, so not for --engine ddp"}
    with pytest.raises(UsageError, match="--engine means nothing to deepspeed"):
        planned("deepspeed", engine=("ddp",))


@pytest.mark.parametrize("backend", ENGINES)
def test_ranks_that_train_are_those_that_do_not_generate(backend: str) -> None:
    layout = layout_of(backend, 4, **SPLIT)
    assert (layout.data, layout.training_ranks, layout.generation_ranks) == (3, 3, 1)
    assert layout.label().endswith("split g1")
    colocated = layout_of(backend, placement="colocated", generation_ranks=1)
    assert colocated == layout_of(backend), "it takes no notice of ranks that are compared with"


def test_a_layout_is_asynchronous_where_samples_may_be_stale() -> None:
    layout = layout_of("openrlhf", 3, staleness=2, **SPLIT)
    assert layout.asynchronous and layout.label() == "zero2 dp2 vllm split g1 async2"
    assert not layout_of("openrlhf", 3, placement="colocated", staleness=2).asynchronous
    with pytest.raises(ValueError, match="--staleness needs --placement split"):
        Layout(devices_per_node=2, data=2, staleness=1)
