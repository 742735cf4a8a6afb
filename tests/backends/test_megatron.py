"""What the megatron backend chooses and refuses beyond what all backends share."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.base import LayoutRequest, unknown_work
from suite.backends.registry import find_backend
from suite.spec.catalogue import find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors
from suite.spec.shape import Shape

DRIVER = find_backend("megatron")
WORKLOAD = find_workload("cpu")
CPU = Measure(device="cpu", precision="fp32", warmup=1, iterations=1)
GIB = 2**30


def shape(architecture: str, **changes: Any) -> Shape:
    body = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 4, "vocab": 256, "positions": 2048}
    return Shape(name="mine", architecture=architecture, **{**body, **changes})


MOE = shape("mixtral", experts={"count": 8, "per_token": 2})


@pytest.mark.parametrize(
    ("size", "layout", "words"),
    [
        (shape("opt"), {}, "builds no models of the opt family"),
        (MOE, {"devices_per_node": 2, "tensor": 2}, "spread the experts with --ep and leave --tp at 1"),
        (shape("mixtral", experts={"count": 8, "per_token": 1}), {}, "no router that gives the one expert"),
        (MOE, {"kernels": "native"}, "native kernels are set up for models without experts alone"),
        (shape("gpt2"), {"kernels": "native", "packing": True}, "use --kernels torch"),
    ],
)
def test_what_a_family_cannot_have_is_said_in_one_line(size: Shape, layout: dict[str, Any], words: str) -> None:
    errors = DRIVER.errors(size, WORKLOAD, Layout(**{"devices_per_node": 1, "data": 1, **layout}), CPU)
    (error,) = [error for error in errors if words in error]
    assert "\n" not in error


def test_packing_and_balance_are_taken_over_and_experts_spread_as_asked() -> None:
    request = LayoutRequest(devices_per_node=4, expert=2, packing=True, balance=True)
    layout = DRIVER.layout(MOE, WORKLOAD, request)
    assert (layout.expert, layout.data, layout.packing, layout.balance) == (2, 4, True, True)
    assert {"ep2", "packed", "balanced"} <= set(layout.label().split())


def test_experts_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="not divisible by 3"):
        DRIVER.layout(MOE, WORKLOAD, LayoutRequest(devices_per_node=4, expert=3))


def test_a_mixture_of_experts_is_never_split_by_tensor_degrees_unless_asked() -> None:
    tight = LayoutRequest(devices_per_node=8, device_memory_bytes=1)
    layout = DRIVER.layout(MOE, WORKLOAD, tight)
    assert (layout.tensor, layout.expert) == (1, 8)
    assert DRIVER.layout(MOE, WORKLOAD, LayoutRequest(devices_per_node=8)).expert == 1
    dense = DRIVER.layout(shape("llama"), WORKLOAD, tight)
    assert (dense.tensor, dense.expert) == (4, 1), "no more than its heads"


def test_uneven_samples_are_padded_for_sequence_parallelism_not_refused() -> None:
    even = WORKLOAD.changed({"new_tokens": 15, "prompt_tokens": 16})
    uneven = WORKLOAD.changed({"lengths": {"kind": "list", "listed": [3, 15]}, "prompt_tokens": 16})
    request = LayoutRequest(devices_per_node=2, tensor=2)
    assert not DRIVER.layout(shape("llama"), even, request).sequence_parallel
    layout = DRIVER.layout(shape("llama"), uneven, request)
    assert layout.sequence_parallel and layout_errors(shape("llama"), uneven, layout) == []


def test_it_takes_uneven_lengths_and_what_else_samples_may_be() -> None:
    uneven = {"kind": "list", "listed": [3, 15]}
    assert unknown_work(DRIVER, WORKLOAD.changed({"lengths": uneven, "prompt_lengths": uneven, "group": 2})) == []
    assert "algorithm" in DRIVER.extra_work
