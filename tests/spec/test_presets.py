"""Presets are complete, and the script's is the script's."""

from __future__ import annotations

import pytest

from suite.spec.base import UsageError
from suite.spec.catalogue import data_file, find_ladder, find_size
from suite.spec.presets import find_preset, presets


@pytest.mark.parametrize("name", presets())
def test_every_point_names_a_size_and_work_that_fits_it(name: str) -> None:
    preset = find_preset(name)
    for point in preset.points:
        size, work = find_size(point.size), preset.work_of(point)
        assert work.sequence_tokens <= size.positions
        assert (work.trainable_layers or 0) <= size.layers
        assert point.ranks % point.layout.get("tensor", 1) == 0
    assert len({point.size for point in preset.points}) == len(preset.points)


def test_the_scripts_preset_has_its_batches_tensor_degrees_and_nodes() -> None:
    preset, reference = find_preset("trlx-ds-chat"), data_file("trlx_reference.yaml")
    assert preset.track == "vendor-default"
    assert tuple(point.size for point in preset.points) == find_ladder("trlx")
    for point in preset.points:
        row, work = reference["sizes"][point.size], preset.work_of(point)
        assert (point.nodes, point.layout["tensor"]) == (row["nodes"], row["tensor"])
        assert point.ranks == row["tensor"] * row["data"]
        assert work.global_rollouts(point.ranks) == row["rollouts"] * row["data"]
        assert work.global_rollouts(point.ranks) == row["batch"] * row["data"] * work.optimizer_steps
        assert work.micro_batch == row["micro_batch"]
    assert preset.work_of(preset.points[-1]).trainable_layers == 33, "32 asked for, 33 trained"


def test_the_ladder_has_true_shapes_and_one_workload_for_all() -> None:
    preset = find_preset("ladder")
    assert preset.track == "equal-config"
    assert tuple(point.size for point in preset.points) == find_ladder("true")
    assert len({preset.work_of(point).model_dump_json() for point in preset.points}) == 1


def test_a_preset_is_found_in_any_case_and_a_misspelt_one_names_the_nearest() -> None:
    assert find_preset(" TRLX-DS-chat ") is find_preset("trlx-ds-chat")
    with pytest.raises(UsageError, match=r"no preset 'laddr', did you mean 'ladder'\?; known are trlx-ds-chat") as told:
        find_preset("laddr")
    assert "\n" not in str(told.value)
    presets().clear()
    assert presets(), "what a caller does to the listing stays with the caller"
