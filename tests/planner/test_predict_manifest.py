"""The planner beside runs: a manifest's prediction, and the layouts in its place."""

import json
from pathlib import Path

import numpy as np
import pytest

from suite.planner.predict_manifest import fewest_devices, fitting_layouts, is_tight, predict_manifest
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.synthetic import synthetic_manifest

ROOT = Path(__file__).resolve().parents[2]
H100 = "NVIDIA H100 80GB HBM3"
WORK = find_workload("trlx-ds-chat")


def manifest(size="1.3B", layout=None, backend="deepspeed", **changes):
    body = {"workload": WORK, "device": "cuda", "precision": "bf16", **changes}
    return synthetic_manifest(backend=backend, size=find_size(size), layout=layout, **body)


@pytest.mark.parametrize(
    ("made", "device"),
    [
        (manifest(), None),
        (manifest(), "Some Accelerator 9000"),
        (manifest(backend="other"), H100),
        (synthetic_manifest(), H100),
    ],
)
def test_what_is_not_known_is_not_predicted(made, device):
    assert predict_manifest(made, device) is None


def memory_of(**fields):
    return predict_manifest(manifest(layout=Layout(devices_per_node=2, data=2, zero_stage=2, **fields)), H100)


def test_a_smaller_bucket_takes_less_of_the_gradients():
    own, small = (memory_of(bucket_elements=elements)["memory"]["gradients"] for elements in (0, 10**8))
    # two buckets in turns and the copy of one, in 16 bit, of 5e8 elements where nobody asks for fewer
    assert own - small == 3 * 2 * 4 * 10**8


def test_the_cache_of_an_engine_takes_no_more_than_its_share():
    own, small = (memory_of(generation="vllm", engine_memory=percent) for percent in (0, 1))
    assert small["memory"]["KV cache"] == int(small["capacity_bytes"] / 100) < own["memory"]["KV cache"]


def test_layouts_in_the_place_of_one_that_will_not_fit_are_expected_to():
    made = manifest("6.7B", Layout(devices_per_node=8, data=8))
    assert not predict_manifest(made, H100)["fits"]
    layouts = fitting_layouts(made.size, made.workload, made.layout, "deepspeed", 80 << 30)
    assert all(layout.ranks == 8 for layout in layouts)
    assert predict_manifest(manifest("6.7B", layouts[0]), H100)["fits"]


def test_layouts_in_the_place_of_one_that_gathers_for_generation_need_not_gather():
    gathers = Layout(devices_per_node=64, data=64, zero_stage=3, gather_for_generation=True)
    made = manifest("13B", gathers)
    capacity = predict_manifest(made, H100)["memory_bytes"] - 1
    layouts = fitting_layouts(made.size, made.workload, gathers, "deepspeed", capacity)
    assert {each.gather_for_generation for each in layouts} == {True, False} and gathers not in layouts
    assert [Layout.model_validate(each.model_dump()) for each in layouts] == layouts


def test_a_layout_that_fits_or_cannot_be_judged_has_no_others():
    made = manifest()
    assert fitting_layouts(made.size, made.workload, made.layout, "deepspeed", 80 << 30) == []
    assert fitting_layouts(made.size, made.workload, made.layout, "other", 1 << 30) == []
    assert fewest_devices(made.size, made.workload, made.layout, "other", 1 << 30) is None


def test_a_layout_that_barely_fits_gives_way_where_room_is_wanted():
    made = manifest("6.7B", Layout(devices_per_node=8, data=8, zero_stage=3))
    needed = predict_manifest(made, H100)["memory_bytes"]
    body = (made.size, made.workload, made.layout, "deepspeed", int(needed * 1.01))
    assert is_tight(needed, needed * 1.001) and not is_tight(needed, needed * 3)
    assert fitting_layouts(*body) == []
    roomy = fitting_layouts(*body, spare=True)
    assert roomy and made.layout not in roomy
    assert not any(is_tight(predict_manifest(manifest("6.7B", each), H100)["memory_bytes"], needed) for each in roomy)


def test_more_devices_are_found_where_no_layout_of_these_fits():
    made = manifest("20B", Layout(devices_per_node=4, data=1, tensor=4), backend="megatron")
    found = fewest_devices(made.size, made.workload, made.layout, "megatron", 40 << 30)
    assert found.ranks > 4
    assert predict_manifest(manifest("20B", found, backend="megatron"), "A100-SXM-40GB")["fits"]


def test_of_runs_that_it_was_not_made_from_four_of_five_lie_in_its_band_and_half_within_a_tenth():
    inside, off = [], []
    for run in sorted((ROOT / "docs/results/h200/runs").iterdir()):
        predicted = predict_manifest(Manifest.model_validate_json((run / "manifest.json").read_text()), "NVIDIA H200")
        measured = json.loads((run / "record.json").read_text())
        rate = measured["throughput"]["samples_per_second"]["value"]
        assert predicted is not None and predicted["fits"] and predicted["device"] == "H200-141GB"
        inside.append(predicted["low"] < rate < predicted["high"])
        off.append(abs(predicted["samples_per_second"] / rate - 1))
        allocated = predicted["memory_bytes"] - predicted["memory"]["outside the allocator"]
        assert allocated == pytest.approx(measured["memory"]["peak_allocated_bytes"], rel=0.09), run.name
    assert len(inside) == 19 and np.mean(inside) >= 0.8 and np.median(off) < 0.1
