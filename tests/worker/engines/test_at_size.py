"""Every row of the presets from 1 B parameters on, built by Megatron at full size and in the ranks of its layout.

What each rank holds and sends is compared with what theory and planner say before a run, within 3 %. Offloaded states
are built and predicted on the device. What DeepSpeed's ranks hold is counted in test_predicted_bytes.py.
"""

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from suite.conduct.planning.plan import make_joint_plan
from suite.conduct.planning.request import GivenOptions, requests_of
from suite.planner.ask import Question
from suite.planner.generation import cache_of_position
from suite.planner.hardware import hardware_of
from suite.planner.memory import standing_bytes
from suite.planner.parameters import load_parameters
from suite.planner.predict_manifest import one_layout
from suite.planner.profiles import PROFILES
from suite.planner.space import Space
from suite.planner.training import REDUCED_BYTES, UPDATED_BYTES, step_parts
from suite.spec.catalogue import find_device, find_preset, find_size, presets
from suite.spec.manifest import Manifest
from suite.theory.memory import kv_bytes_per_position
from suite.theory.parameters import parameter_count
from suite.theory.shards import stages, states
from tests.theory.shapes import parameters_of
from tests.worker.tiny import told_by_ranks

STACKS = {"megatron": {"torch": "2"}}
HARDWARE: Any = hardware_of(find_device("H100-SXM-80GB"))
SMALLEST = 1e9
WITHIN = 0.03
STATES = ("weights", "reference", "optimizer states", "gradients")
ROWS = [
    (preset.name, point.size)
    for preset in presets().values()
    for point in preset.points
    if "megatron" in preset.backends and parameter_count(find_size(point.size)).total >= SMALLEST
]

pytestmark = [pytest.mark.ranks, pytest.mark.ci, pytest.mark.timeout(600)]
every_row = pytest.mark.parametrize(("preset", "size"), ROWS)


@lru_cache(maxsize=None)
def manifest_of(preset: str, size: str) -> Manifest:
    measure = {"device": "cuda", "iterations": 3}
    common = {"backends": ("megatron",), "layout": {"recompute": "none"}, "measure": measure, "repeats": 1}
    plan = make_joint_plan(requests_of(find_preset(preset), GivenOptions(sizes=(size,)), common), STACKS)
    (manifest,) = plan.manifests
    on_device = {"offload_optimizer": False, "offload_parameters": False}
    return manifest.model_copy(update={"layout": manifest.layout.model_copy(update=on_device)})


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Of each row what the first rank of each pipeline stage holds, and sends in a step."""
    bodies = {" ".join(row): manifest_of(*row).model_dump(mode="json", by_alias=True) for row in ROWS}
    path = tmp_path_factory.mktemp("megatron") / "manifests.json"
    path.write_text(json.dumps(bodies))
    (found,) = told_by_ranks(["tests.worker.engines.at_size", str(path)], 1, path.parent)
    return found


@every_row
def test_a_rank_holds_what_theory_says_of_it(preset, size, counted):
    """Theory's states are the least there can be: a stage may hold more, all of them together at most 3 % more."""
    manifest, each = manifest_of(preset, size), counted[f"{preset} {size}"]
    shape, layout, precision = manifest.size, manifest.layout, manifest.measure.precision
    total, _ = parameters_of(shape, manifest.workload)
    assert sum(stage["total"] for stage in each) == total
    expected = stages(shape, manifest.workload, layout)
    for stage, own in zip(expected, each, strict=True):
        assert own["cache"] == kv_bytes_per_position(shape, stage.layers, layout, precision)
    floors = [states(stage, layout, precision) for stage in expected]
    parts = [(floor.weights, floor.reference, floor.optimizer) for floor in floors]
    for least, own in zip(parts, each, strict=True):
        assert all(floor <= own[part] for floor, part in zip(least, STATES[:3], strict=True))
    held = sum(stage[part] for stage in each for part in STATES[:3])
    assert held <= (1 + WITHIN) * sum(map(sum, parts))


def planned(manifest: Manifest) -> Space:
    asked = Question(manifest.size, manifest.workload, HARDWARE, PROFILES["megatron"], load_parameters())
    return one_layout(asked, manifest.work, manifest.layout)


@every_row
def test_the_planner_predicts_what_the_fullest_rank_holds(preset, size, counted):
    manifest, each = manifest_of(preset, size), counted[f"{preset} {size}"]
    space = planned(manifest)
    predicted = standing_bytes(space.work, load_parameters().values)
    parts = [part for part in STATES if part in each[0]]
    fullest = max(each, key=lambda stage: sum(stage[part] for part in parts))
    for part in parts:
        assert float(predicted[part][0]) == pytest.approx(fullest[part], rel=WITHIN), part
    if manifest.layout.generation == "hf":
        assert float(cache_of_position(space.gen).item()) == pytest.approx(fullest["cache"], rel=WITHIN)


@every_row
def test_the_planner_counts_the_bytes_that_a_training_step_sends(preset, size, counted):
    """Its seconds over links of a byte per second of which nothing is hidden, against what Megatron hands to groups and
    to the next stages: of the stage that sends most.

    Experts have an optimizer of their own, and each of the two gathers the updated weights of both (megatron-core
    0.16.1, distrib_optimizer.py, 2618), where the planner has them gathered once.
    """
    manifest, each = manifest_of(preset, size), counted[f"{preset} {size}"]
    work = planned(manifest).work
    one = np.ones(len(work))
    slow = replace(work, jobs=replace(work.jobs, link=one, network=one))
    exposed = dict.fromkeys(("tensor_exposed", "tensor_asynchronous", "data_exposed", "stage_exposed"), 1.0)
    parts = step_parts(slow, {**load_parameters().values, **exposed, "data_last": 0.0, "head_imbalance": 1.0})
    again = each[0]["optimizers"] - 1
    assert again == (manifest.size.experts is not None)
    parts["gradient reduction"] *= 1 + again * UPDATED_BYTES / (REDUCED_BYTES + UPDATED_BYTES)
    for part in each[0]["sent"]:
        most = max(stage["sent"][part] for stage in each)
        assert float(parts[part][0]) == pytest.approx(most, rel=WITHIN), part
