"""What the planner adds to a session: layouts that fit, warnings, predictions in records. Nothing on a CPU."""

import subprocess
import sys

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.conduct.planning.plan import make_plan
from suite.conduct.planning.prediction import with_prediction
from suite.spec.catalogue import find_size, find_workload
from suite.spec.manifest import Measure
from tests.conduct.requests import request
from tests.synthetic import facts_of, make_bundle, synthetic_manifest


def layout_of(memory, **layout):
    asked = request(
        backends=("deepspeed",),
        sizes=(find_size("2.7B"),),
        ranks=(8,),
        workload=find_workload("trlx-ds-chat"),
        measure=Measure(device="cuda", precision="bf16"),
        layout=layout,
        device_memory_bytes=memory,
        repeats=1,
    )
    return make_plan(asked, {"deepspeed": {}}).manifests[0].layout


def test_the_stacks_own_choice_stands_where_it_fits_or_memory_is_unknown_or_the_user_chose():
    assert layout_of(80 << 30).zero_stage == 2
    assert layout_of(None).zero_stage == 2
    assert layout_of(16 << 30, zero_stage=(1,)).zero_stage == 1


def test_a_choice_that_does_not_fit_gives_way_to_the_nearest_that_does():
    small = layout_of(16 << 30)
    assert small != layout_of(80 << 30)
    assert small.ranks == 8


def test_a_record_of_a_known_device_carries_its_prediction_and_a_cpus_none(tmp_path):
    manifest = synthetic_manifest(device="cuda", precision="bf16")
    path = make_bundle(tmp_path / "cuda", manifest, facts=facts_of(manifest, "NVIDIA H100 80GB HBM3"))
    record = with_prediction(derive(Bundle(path)), manifest)
    assert record.predicted["samples_per_second"] > 0
    assert record.predicted["device"] == "H100-SXM-80GB"
    manifest = synthetic_manifest()
    record = derive(Bundle(make_bundle(tmp_path / "cpu", manifest)))
    assert with_prediction(record, manifest) is record


def test_a_cpu_run_loads_no_planner():
    code = (
        "import sys, suite.conduct.running.execute, suite.conduct.planning.plan; "
        "assert 'suite.planner.plan' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
