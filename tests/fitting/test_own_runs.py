"""The planner beside runs: a manifest's prediction, the layouts in its place, and learning from finished ones."""

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.fitting.calibrate import calibrated
from suite.planner.ask import question
from suite.planner.predict_manifest import fewest_devices, fitting_layouts, is_tight, predict_manifest
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

H100 = "NVIDIA H100 80GB HBM3"
WORK = find_workload("trlx-ds-chat")


def manifest(size="1.3B", layout=None, backend="deepspeed", **changes):
    return synthetic_manifest(
        backend=backend,
        size=find_size(size),
        workload=WORK,
        layout=layout or Layout(devices_per_node=1, data=1),
        device="cuda",
        precision="bf16",
        **changes,
    )


def test_a_manifest_is_predicted_on_a_known_device():
    found = predict_manifest(manifest(), H100)
    assert found["fits"]
    assert found["device"] == "H100-SXM-80GB"
    assert found["samples_per_second"] == pytest.approx(WORK.rollouts / found["iteration_seconds"])
    assert found["memory_bytes"] == pytest.approx(sum(found["memory"].values()), abs=20)


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
    assert is_tight(needed, needed * 1.01) and not is_tight(needed, needed * 1.2)
    assert fitting_layouts(*body) == []
    roomy = fitting_layouts(*body, spare=True)
    assert roomy and made.layout not in roomy
    assert not any(is_tight(predict_manifest(manifest("6.7B", each), H100)["memory_bytes"], needed) for each in roomy)


def test_more_devices_are_found_where_no_layout_of_these_fits():
    made = manifest("20B", Layout(devices_per_node=4, data=1, tensor=4), backend="megatron")
    found = fewest_devices(made.size, made.workload, made.layout, "megatron", 40 << 30)
    assert found.ranks > 4
    assert predict_manifest(manifest("20B", found, backend="megatron"), "A100-SXM-40GB")["fits"]


def finished(root, seconds, ceilings=None):
    made = manifest(warmup=1, iterations=5)
    facts = {**facts_of(made, H100), "ceilings": ceilings}
    path = make_bundle(root, made, seconds=seconds, facts=facts)
    bundle = Bundle(path)
    bundle.write_record(derive(bundle))
    return made


def test_own_runs_set_the_phases_to_what_was_measured(tmp_path):
    made = finished(tmp_path, 8.0)
    asked = calibrated(question(made.size, made.workload, "H100-SXM-80GB", "deepspeed"), tmp_path)
    plan = asked.plan([1], most=64)
    option = next(option for option in plan.options if option.layout == made.layout and option.micro_batch == 4)
    assert option.phases["generate"] == pytest.approx(4.0, rel=0.05)
    assert option.phases["train"] == pytest.approx(2.0, rel=0.05)
    assert any("calibrated on your runs" in note for note in plan.notes)


def test_measured_ceilings_replace_shares_of_the_peak(tmp_path):
    made = finished(tmp_path, 8.0, {"matmul_flops": 500e12, "copy_bytes_per_second": 2e12})
    asked = calibrated(question(made.size, made.workload, "H100-SXM-80GB", "deepspeed"), tmp_path)
    assert asked.parameters.values["matrix_hopper"] == pytest.approx(500 / 989.5)
    assert asked.parameters.values["memory_bandwidth"] == pytest.approx(2 / 3.35)


@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", 500 / 989.5), ("float16", 500 / 989.5), ("float32", None)])
def test_a_measured_product_is_compared_with_the_peak_of_its_own_dtype(tmp_path, dtype, share):
    made = finished(tmp_path, 8.0, {"matmul_flops": 500e12, "matmul_dtype": dtype})
    asked = question(made.size, made.workload, "H100-SXM-80GB", "deepspeed")
    expected = asked.parameters.values["matrix_hopper"] if share is None else share
    assert calibrated(asked, tmp_path).parameters.values["matrix_hopper"] == pytest.approx(expected)


def test_a_folder_without_a_fitting_run_is_told(tmp_path):
    finished(tmp_path, 8.0)
    with pytest.raises(UsageError, match="no finished run of megatron"):
        calibrated(question(find_size("1.3B"), WORK, "H100-SXM-80GB", "megatron"), tmp_path)
