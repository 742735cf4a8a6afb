"""Split placement as a user asks for it: layouts of the engine backends, and every refusal in words."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.placement import placed
from suite.backends.registry import find_backend
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from tests.conduct.requests import shape, workload

ENGINES = ("deepspeed", "megatron")
CPU = Measure(device="cpu", precision="fp32")


def layout_of(backend: str, ranks: int, nodes: int = 1, **asked: Any) -> Layout:
    request = LayoutRequest(nodes=nodes, devices_per_node=ranks // nodes, **asked)
    return find_backend(backend).layout(shape(), workload(), request)


def refusals(backend: str, layout: Layout) -> str:
    return "; ".join(find_backend(backend).errors(shape(), workload(), layout, CPU))


@pytest.mark.parametrize("backend", ENGINES)
def test_ranks_that_train_are_those_that_do_not_generate(backend: str) -> None:
    layout = layout_of(backend, 4, placement="split", generation_ranks=1)
    assert (layout.data, layout.training_ranks, layout.generation_ranks) == (3, 3, 1)
    assert layout.label().endswith("split g1")
    assert refusals(backend, layout) == ""


@pytest.mark.parametrize("backend", ENGINES)
def test_colocated_ranks_take_no_notice_of_generation_ranks_that_are_compared_with(backend: str) -> None:
    assert layout_of(backend, 2, placement="colocated", generation_ranks=1) == layout_of(backend, 2)


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize(
    ("ranks", "asked", "reason"),
    [
        (2, {"placement": "split"}, "needs --generation-ranks"),
        (2, {"generation_ranks": 1}, "for --placement split"),
        (1, {"placement": "split", "generation_ranks": 1}, "none is left to train"),
    ],
)
def test_what_makes_no_two_sides_is_refused(backend: str, ranks: int, asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        layout_of(backend, ranks, **asked)


def test_what_cannot_hand_its_weights_over_is_refused() -> None:
    split = {"placement": "split", "generation_ranks": 1}
    assert "one node" in refusals("deepspeed", layout_of("deepspeed", 4, nodes=2, **split))
    assert "tensor, pipeline and expert parallel must be 1" in refusals(
        "megatron", layout_of("megatron", 3, tensor=2, **split)
    )
    gathers = layout_of("deepspeed", 3, zero_stage=3, gather_for_generation=True, **split)
    assert "--gather-for-generation" in refusals("deepspeed", gathers)
    assert not layout_of("deepspeed", 3, zero_stage=3, **split).gather_for_generation


def test_a_trainer_that_makes_ranks_generate_in_turn_has_no_placement() -> None:
    assert not {"placement", "generation_ranks", "staleness"} & set(find_backend("trlx-deepspeed").settings)


@pytest.mark.parametrize("backend", ENGINES)
def test_the_suites_own_split_is_never_asked_how_stale(backend: str) -> None:
    assert "staleness" not in find_backend(backend).settings


def test_a_layout_is_asynchronous_where_samples_may_be_stale() -> None:
    asked = {"placement": "split", "generation_ranks": 1}
    request = LayoutRequest(devices_per_node=3, staleness=2, **asked)
    assert placed(request) == {**asked, "staleness": 2}
    layout = Layout(devices_per_node=3, data=2, **placed(request))
    assert layout.asynchronous
    assert layout.label() == "dp2 split g1 async2"
    assert "staleness" not in Layout(devices_per_node=3, data=2, **asked).model_dump()
    assert placed(LayoutRequest(devices_per_node=3, placement="colocated", staleness=2)) == {}


def test_staleness_without_ranks_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match="--staleness is for --placement split"):
        placed(LayoutRequest(devices_per_node=2, staleness=1))
    with pytest.raises(ValueError, match="--staleness needs --placement split"):
        Layout(devices_per_node=2, data=2, staleness=1)
