"""What the drivers choose, refuse and set, without any stack installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from suite.backends import registry
from suite.backends.base import stack_of, versions_errors
from suite.backends.deepspeed import DeepSpeed
from suite.backends.registry import backends, find_backend
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure

WORKLOAD = find_workload("trlx-ds-chat")
CUDA = Measure(device="cuda", precision="bf16")
CPU = Measure(device="cpu", precision="fp32")
OFFLOADED = Layout(devices_per_node=1, data=1, distributed_optimizer=True, offload_optimizer=True)
GIB = 1 << 30


@pytest.mark.parametrize(("size", "stage"), [("1.3B", 2), ("6.7B", 3), ("66B", 3)])
def test_deepspeed_takes_the_stage_that_deepspeed_chat_takes(size: str, stage: int) -> None:
    layout = find_backend("deepspeed").layout(find_size(size), WORKLOAD, LayoutRequest(devices_per_node=8))
    assert (layout.zero_stage, layout.data) == (stage, 8)


def test_deepspeed_offloads_parameters_under_stage_3_by_itself() -> None:
    request = LayoutRequest(devices_per_node=1, offload_parameters=True)
    assert find_backend("deepspeed").layout(find_size("1.3B"), WORKLOAD, request).zero_stage == 3


def generates_on_whole_weights(size: str, memory: int | None = None, ranks: int = 8, **asked: Any) -> bool:
    """What deepspeed lays out under ZeRO-3."""
    request = LayoutRequest(devices_per_node=ranks, device_memory_bytes=memory, **{"zero_stage": 3, **asked})
    return find_backend("deepspeed").layout(find_size(size), WORKLOAD, request).gather_for_generation


def test_deepspeed_gathers_for_generation_where_the_weights_fit_or_nobody_knows() -> None:
    fits = {size: generates_on_whole_weights(size, 80 * GIB) for size in ("6.7B", "13B", "66B")}
    assert fits == {"6.7B": True, "13B": True, "66B": False}
    assert not generates_on_whole_weights("6.7B", 24 * GIB)
    assert generates_on_whole_weights("66B")
    # 1 rank has the weights whole, whatever the memory: a scaling curve goes on from it
    assert generates_on_whole_weights("6.7B", 24 * GIB, ranks=1)


def test_weights_that_wait_in_host_memory_are_gathered_only_when_asked_for() -> None:
    assert not generates_on_whole_weights("6.7B", offload_parameters=True)
    assert generates_on_whole_weights("6.7B", offload_parameters=True, gather_for_generation=True)


def test_whoever_says_how_to_generate_under_zero_3_is_obeyed() -> None:
    assert generates_on_whole_weights("66B", 24 * GIB, gather_for_generation=True)
    assert not generates_on_whole_weights("6.7B", 80 * GIB, gather_for_generation=False)


def test_other_stages_have_nothing_to_gather_for_generation() -> None:
    assert not generates_on_whole_weights("6.7B", zero_stage=2)
    with pytest.raises(ValueError, match="under ZeRO stage 3 only"):
        generates_on_whole_weights("6.7B", zero_stage=2, gather_for_generation=True)


@pytest.mark.parametrize("backend", ["deepspeed", "trlx-deepspeed"])
def test_zero_3_is_for_several_ranks_where_models_are_large_or_zero_2_leaves_no_room(backend: str) -> None:
    def stage(size: str, devices: int, gib: int | None = None, **switches: bool) -> int:
        memory = None if gib is None else gib * GIB
        request = LayoutRequest(devices_per_node=devices, device_memory_bytes=memory, **switches)
        return find_backend(backend).layout(find_size(size), WORKLOAD, request).zero_stage

    assert stage("6.7B", 1) == stage("6.7B", 1, 80) == stage("6.7B", 1, 80, offload_optimizer=True) == 2
    assert stage("2.7B", 2, 80) == 2, "states of 26 GiB"
    assert stage("2.7B", 2, 36) == 3, "no room in 25 of 36 GiB"


def test_megatron_takes_the_smallest_tensor_degree_that_leaves_room() -> None:
    driver = find_backend("megatron")
    request = LayoutRequest(devices_per_node=8, device_memory_bytes=80 * GIB)
    degrees = [driver.layout(find_size(size), WORKLOAD, request).tensor for size in ("1.3B", "6.7B", "13B", "20B")]
    assert degrees == sorted(degrees) and degrees[0] == 1 and degrees[-1] > 1
    unknown = LayoutRequest(devices_per_node=8)
    assert driver.layout(find_size("20B"), WORKLOAD, unknown).tensor == 1, "an unknown device decides nothing"


def test_megatron_turns_sequence_parallelism_on_with_tensor_parallelism_unless_told() -> None:
    driver = find_backend("megatron")
    on = driver.layout(find_size("6.7B"), WORKLOAD, LayoutRequest(devices_per_node=2, tensor=2))
    off = driver.layout(
        find_size("6.7B"), WORKLOAD, LayoutRequest(devices_per_node=2, tensor=2, sequence_parallel=False)
    )
    assert on.sequence_parallel and not off.sequence_parallel


@pytest.mark.parametrize(
    ("backend", "layout", "measure", "words"),
    [
        ("deepspeed", Layout(devices_per_node=2, tensor=2, data=1), CPU, "data parallel only"),
        ("megatron", Layout(devices_per_node=1, data=1, zero_stage=2), CPU, "belong to the deepspeed backend"),
        (
            "megatron",
            Layout(devices_per_node=1, data=1, distributed_optimizer=True, offload_optimizer=True),
            CPU,
            "CPU",
        ),
        ("deepspeed", Layout(devices_per_node=1, data=1), Measure(device="cpu", precision="fp16"), "fp16"),
    ],
)
def test_what_a_stack_cannot_do_is_said(backend: str, layout: Layout, measure: Measure, words: str) -> None:
    errors = find_backend(backend).errors(find_size("1.3B"), WORKLOAD, layout, measure)
    assert any(words in error for error in errors)


def test_a_hydra_reference_is_refused_by_megatron_and_taken_by_deepspeed() -> None:
    hydra = WORKLOAD.model_validate({**WORKLOAD.model_dump(), "trainable_layers": 2, "reference": "hydra"})
    layout = Layout(devices_per_node=1, data=1)
    assert "full reference" in find_backend("megatron").errors(find_size("1.3B"), hydra, layout, CUDA)[0]
    assert find_backend("deepspeed").errors(find_size("1.3B"), hydra, layout, CUDA) == []


def test_grouped_query_attention_is_not_gpt2() -> None:
    grouped = find_size("1.3B").model_copy(update={"kv_heads": 4})
    for driver in backends().values():
        first = driver.errors(grouped, WORKLOAD, Layout(devices_per_node=1, data=1), CUDA)[0]
        assert "key-value heads" in first or "is of the gpt2 family" in first


def test_megatron_gets_one_hardware_queue_on_a_gpu_only() -> None:
    driver = find_backend("megatron")
    assert driver.variables(CUDA) == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} and driver.variables(CPU) == {}


def test_an_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'megatron'"):
        find_backend("megatorn")


class Toy(DeepSpeed):
    """What another package might bring."""

    name = "toy"
    packages = ("toy-stack",)


def registered(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint(name="toy", value=value, group=registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    registry.backends.cache_clear()


@pytest.fixture(autouse=True)
def _forget_registered_backends() -> Iterator[None]:
    yield
    registry.backends.cache_clear()


def test_another_package_adds_a_backend_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, "tests.backends.test_backends:Toy")
    assert list(backends())[-1] == "toy"
    assert find_backend("toy").packages == ("toy-stack",)


@pytest.mark.parametrize("value", ["tests.no_such_module:Toy", "tests.backends.test_backends:NoSuchName"])
def test_a_registered_backend_that_does_not_load_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    registered(monkeypatch, value)
    with pytest.raises(UsageError, match=r"'toy' of tests.*does not load") as refused:
        backends()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("measure", "words"),
    [(CPU, "on CUDA devices alone"), (CUDA.model_copy(update={"precision": "fp32"}), "no fp32"), (CUDA, None)],
)
def test_megatrons_native_kernels_are_for_cuda_in_16_bits(measure: Measure, words: str | None) -> None:
    driver, workload = find_backend("megatron"), WORKLOAD
    layout = driver.layout(find_size("1.3B"), workload, LayoutRequest(devices_per_node=1, kernels="native"))
    assert layout.kernels == "native" and "native kernels" in layout.label()
    errors = driver.errors(find_size("1.3B"), workload, layout, measure)
    assert errors == [] if words is None else words in errors[0]


def test_megatrons_native_kernels_need_a_package_that_torchs_do_without() -> None:
    driver, workload = find_backend("megatron"), WORKLOAD
    stack = {"torch": "2.13.0", "megatron-core": "0.16.1"}
    plain, native = (Layout(devices_per_node=1, data=1, kernels=kernels) for kernels in ("torch", "native"))
    (error,) = versions_errors(driver, workload, native, stack)
    assert error.startswith("native kernels need transformer-engine") and "use torch kernels" in error
    whole = {**stack, "transformer-engine": "2.11.0"}
    assert versions_errors(driver, workload, native, whole) == versions_errors(driver, workload, plain, stack) == []
    assert stack_of(driver, native, whole) == whole
    assert stack_of(driver, plain, whole) == stack, (
        "the manifest of a run with torch kernels is the same with and without"
    )
