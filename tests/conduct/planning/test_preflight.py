"""Before GPUs are spent: every row fits and ends in time, or is refused with the reason and what would do."""

import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from suite.backends.registry import find_backend
from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.prediction import with_prediction
from suite.conduct.planning.preflight import preflight
from suite.conduct.planning.request import GivenOptions, requests_of
from suite.planner.hardware import hardware_of
from suite.planner.predict_manifest import predict_manifest
from suite.spec.catalogue import devices, find_device, find_preset, presets
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.manifest import Limits, Manifest
from tests.planner.test_predict_manifest import manifest
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

STACKS = {name: {"torch": "2"} for name in ("deepspeed", "megatron", "trlx-nemo", "trlx-deepspeed", "trlx-ddp")}
A100 = "A100-SXM-80GB"
EIGHT = Layout(devices_per_node=8, data=8)


def plan_of(preset: str, device: str | None, *backends: str, sizes: tuple[str, ...] = (), **changes: Any) -> Plan:
    found, known = find_preset(preset), find_device(device) if device else None
    fields = {
        "backends": backends or found.backends,
        "layout": LayoutChoices().model_dump(),
        "measure": {"device": "cuda"},
        "repeats": 1,
        "device_memory_bytes": known.memory_bytes if known else None,
        "device_name": known.name if known else None,
        "left_open": ("iterations", "run_seconds", "silence_seconds"),
        **changes,
    }
    return make_joint_plan(requests_of(found, GivenOptions(sizes=sizes), fields), STACKS)


#: presets of stacks that are all planned for; which trainers a machine has, the planner does not know
FIXED = {name: each for name, each in presets().items() if not each.installed_only}


@pytest.mark.parametrize("device", [name for name, device in devices().items() if hardware_of(device)])
@pytest.mark.parametrize("preset", [name for name, each in FIXED.items() if each.precision != "fp32"])
def test_every_row_of_a_preset_fits_and_ends_in_time_or_is_refused(preset, device):
    plan = plan_of(preset, device)
    assert len(plan.manifests) == len(find_preset(preset).points) * len(find_preset(preset).backends)
    for made, row in zip(plan.manifests, preflight(plan.manifests, device).rows, strict=True):
        if row.refused is not None:
            assert re.search(r"would do|would( \(|$|;)|is expected to fit", row.refused), row.refused
            continue
        assert row.expected is not None and row.expected.fits
        assert row.expected.run_seconds < made.limits.run_seconds
        assert max(row.expected.phase_seconds.values()) < made.limits.silence_seconds <= made.limits.run_seconds


@pytest.mark.parametrize("preset", [name for name, each in FIXED.items() if each.precision == "fp32"])
def test_a_presets_twin_for_a_cpu_is_planned_on_each_of_its_backends(preset):
    found = find_preset(preset)
    of_a_cpu = plan_of(preset, None, measure={"device": "cpu"}, left_open=())
    assert {made.backend.name for made in of_a_cpu.manifests} == set(found.backends) and not of_a_cpu.skipped
    assert {made.layout.generation for made in of_a_cpu.manifests} == {"hf"}
    assert len({made.work_hash for made in of_a_cpu.manifests}) == 1
    rows = preflight(plan_of(preset, A100).manifests, A100).rows
    assert {row.unchecked for row in rows} == {"runs in fp32, of which the planner knows nothing"}


@pytest.mark.parametrize("backend", ["deepspeed", "megatron"])
def test_the_largest_size_of_the_ladder_runs_on_four_nodes_of_eight_devices_of_80_gb(backend):
    for device in (A100, None):  # also where nobody said which GPU it is
        (made,) = plan_of("ladder", device, backend, sizes=("66B",)).manifests
        assert (made.layout.nodes, made.layout.devices_per_node) == (4, 8)
        (row,) = preflight([made], A100).rows
        assert row.refused is None and row.expected is not None
        assert row.expected.fits


@cache
def too_large() -> Manifest:
    return manifest("6.7B", EIGHT)


def test_what_does_not_fit_or_has_no_such_precision_is_refused_with_the_options_that_would_do():
    (row,) = preflight([too_large()], A100).rows
    assert row.refused is not None
    assert "is expected to need" in row.refused and "A100-SXM-80GB, which has 80.0" in row.refused
    options = re.search(r"; --zero ([123]) is expected to fit$", row.refused)
    assert options
    again = manifest("6.7B", Layout(devices_per_node=8, data=8, zero_stage=int(options.group(1))))
    assert preflight([again], A100).rows[0].refused is None
    (row,) = preflight([manifest("1.3B", EIGHT)], "V100-SXM2-32GB").rows
    assert row.refused is not None and "--dtype fp16 would do" in row.refused


def test_what_is_offloaded_must_fit_the_host():
    made = manifest("6.7B", Layout(devices_per_node=1, data=1, zero_stage=2, offload_optimizer=True))
    (row,) = preflight([made], A100, host_memory_bytes=2 << 40).rows
    assert row.refused is None and row.expected is not None and row.expected.host_memory_bytes > 80e9
    (row,) = preflight([made], A100, host_memory_bytes=64 << 30).rows
    assert row.refused is not None and "in host memory, of which there are 64.0" in row.refused


def test_where_nothing_fits_more_devices_are_named():
    alone = manifest("20B", Layout(devices_per_node=4, tensor=4, data=1), backend="megatron")
    (row,) = preflight([alone], "A100-SXM-40GB").rows
    found = re.search(r"no layout of 4 devices fits, (\d+) with (--.*) would", row.refused or "")
    assert found and int(found.group(1)) > 4


def test_what_will_not_end_is_refused_with_a_limit_and_with_fewer_iterations():
    made = manifest("66B", Layout(nodes=4, devices_per_node=8, data=32, zero_stage=3), iterations=8)
    seconds = predict_manifest(made, "H200-141GB")["iteration_seconds"]
    expected = (made.measure.warmup + made.measure.iterations) * seconds
    enough = made.model_copy(update={"limits": Limits(run_seconds=expected + 1)})
    too_short = made.model_copy(update={"limits": Limits(run_seconds=expected - 1), "hash": "another"})
    good, bad = preflight([enough, too_short], "H200-141GB").rows
    assert good.expected == bad.expected and good.expected is not None
    assert good.expected.run_seconds == pytest.approx(expected)
    assert good.refused is None and bad.refused is not None
    found = re.search(r"of iterations, and its limit is .*; --timeout (\d+)([mh]), or --iterations (\d) ", bad.refused)
    assert found and int(found.group(1)) * {"m": 60, "h": 3600}[found.group(2)] > expected
    assert 0 < int(found.group(3)) < made.measure.iterations


def test_repeats_are_refused_once_and_counted_each():
    found = preflight([too_large(), too_large()], A100, price=2.0)
    assert len(found.rows) == 2 and len(found.refusals) == 1
    totals = found.totals()
    hours = sum(row.expected.gpu_hours for row in found.rows if row.expected)
    assert totals["gpu_hours"] == pytest.approx(hours) and totals["cost"] == pytest.approx(2 * hours)
    (line,) = found.summary()
    assert "2 runs" in line and "at 2 per GPU-hour" in line
    assert found.of(()).totals()["runs"] == 0 and list(found.of(()).summary()) == []


@pytest.mark.parametrize(
    ("made", "device", "words"),
    [
        (manifest("1.3B", EIGHT), None, "the GPU is not known"),
        (manifest("1.3B", EIGHT), "NVIDIA T4", "not in the device catalogue"),
        (manifest("1.3B", EIGHT, precision="fp32"), A100, "fp32"),
        (manifest("1.3B", EIGHT, backend="other"), A100, "knows nothing"),
    ],
)
def test_what_is_not_known_is_said_and_not_refused(made, device, words):
    found = preflight([made], device)
    assert found.refusals == () and found.totals()["runs"] == 0
    (line,) = found.summary()
    assert line.startswith("not checked: ") and words in line


def test_a_layout_that_somebody_chose_is_never_changed():
    asked = {**LayoutChoices().model_dump(), "tensor": (8,)}
    (made,) = plan_of("ladder", A100, "megatron", sizes=("66B",), layout=asked).manifests
    assert (made.layout.tensor, made.layout.pipeline, made.layout.data) == (8, 1, 4)
    (row,) = preflight([made], A100).rows
    assert row.refused is not None and "--pp" in row.refused


@pytest.mark.parametrize("name", ["deepspeed", "megatron", "trlx-deepspeed", "trlx-ddp", "trlx-nemo"])
def test_every_backend_of_the_suite_is_predicted(name):
    (row,) = preflight([manifest("1.3B", EIGHT, backend=find_backend(name).name)], A100).rows
    assert row.expected is not None


def test_a_record_of_a_known_device_carries_its_prediction_and_a_cpus_none(tmp_path):
    made = synthetic_manifest(device="cuda", precision="bf16")
    path = make_bundle(tmp_path / "cuda", made, facts=facts_of(made, "NVIDIA H100 80GB HBM3"))
    record = with_prediction(derive(Bundle(path)), made)
    assert record.predicted is not None and record.predicted["samples_per_second"] > 0
    assert record.predicted["device"] == "H100-SXM-80GB"
    record = derive(Bundle(make_bundle(tmp_path / "cpu")))
    assert with_prediction(record, synthetic_manifest()) is record


def test_a_cpu_run_loads_no_planner():
    loading = "import sys, suite.conduct.running.execute, suite.conduct.planning.plan"
    code = f"{loading}; assert 'suite.planner.plan' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
