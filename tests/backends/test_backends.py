"""What the drivers choose, refuse and set, without any stack installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from suite.backends import registry
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
        assert "key-value heads" in driver.errors(grouped, WORKLOAD, Layout(devices_per_node=1, data=1), CUDA)[0]


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
