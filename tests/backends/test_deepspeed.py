"""What the deepspeed backend takes over from a request, and which models it builds."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.base import unknown_work, versions_errors
from suite.backends.registry import find_backend
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.worker.engines.deepspeed.config import ARCHITECTURES

DRIVER = find_backend("deepspeed")
CPU = Measure(device="cpu", precision="fp32", warmup=1, iterations=1)
WORK = Workload(name="tiny", prompt_tokens=8, new_tokens=8, rollouts=4, micro_batch=2)


def shape(**changes: Any) -> Shape:
    body = {"layers": 2, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "vocab": 256, "positions": 64}
    return Shape(**{"name": "mine", "architecture": "llama", **body, **changes})


def errors(size: Shape) -> list[str]:
    return DRIVER.errors(size, WORK, DRIVER.layout(size, WORK, LayoutRequest(devices_per_node=1)), CPU)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_rotary_families_with_grouped_queries_are_built(architecture: str) -> None:
    assert architecture in ARCHITECTURES
    assert errors(shape(architecture=architecture)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "mixtral", "experts": {"count": 4, "per_token": 2}}, "no expert parallelism"),
        ({"architecture": "opt", "kv_heads": 4}, "of the opt family"),
        ({"hidden": 66, "head_width": 16}, "hidden 66 to be divisible by its 4 heads"),
        ({"architecture": "gpt2"}, "as many key-value heads as heads"),
    ],
)
def test_what_it_does_not_build_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    (error,) = errors(shape(**changes))
    assert words in error and "\n" not in error


def test_every_choice_of_generation_and_of_rows_is_taken_over_and_none_is_by_default() -> None:
    def layout(**asked: Any) -> dict[str, Any]:
        return DRIVER.layout(shape(), WORK, LayoutRequest(devices_per_node=1, **asked)).model_dump()

    wanted = {"packing": True, "balance": True, "generation": "vllm", "engine_sleep": True}
    assert layout(**wanted).items() >= wanted.items()
    assert layout().keys().isdisjoint(wanted)  # written when set


def test_uneven_and_packed_samples_need_a_transformers_of_today() -> None:
    uneven = WORK.changed({"lengths": "lognormal:mean=4,sigma=0.6,cap=8"})
    packed = Layout(devices_per_node=1, data=1, packing=True)
    plain = Layout(devices_per_node=1, data=1)
    for workload, layout, asked in ((uneven, plain, "uneven"), (WORK, packed, "--packing")):
        (error,) = versions_errors(DRIVER, workload, layout, {"transformers": "4.33.3"})
        assert asked in error and "finds 4.33.3" in error
        assert versions_errors(DRIVER, workload, layout, {"transformers": "5.19.0"}) == []
    assert versions_errors(DRIVER, WORK, plain, {"transformers": "4.33.3"}) == []


def test_it_knows_algorithms_groups_and_uneven_lengths() -> None:
    uneven = {"lengths": "lognormal:mean=4,sigma=0.6,cap=8", "prompt_lengths": "lognormal:mean=4,sigma=0.6,cap=8"}
    assert unknown_work(DRIVER, WORK.changed(uneven)) == []
    assert unknown_work(find_backend("trlx-deepspeed"), WORK.changed(uneven)) != []
