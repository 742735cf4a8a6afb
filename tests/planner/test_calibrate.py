"""Learning from finished runs: how far they move what was thought before, and how sure they make one."""

import numpy as np
import pytest

from suite.planner.ask import question
from suite.planner.calibrate import calibrated
from suite.planner.learnt import before
from suite.planner.predict_manifest import predict_manifest
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size
from suite.spec.layout import Layout
from tests.bundle.tampering import derive_again
from tests.planner.test_predict_manifest import H100, WORK, manifest
from tests.synthetic import facts_of, make_bundle

ASKED = question(find_size("1.3B"), WORK, "H100-SXM-80GB", "deepspeed")
LONGER = 1.6


def finished(root, size="1.3B", data=1, scatter=0.0, ceilings=None, repeat=1):
    """A run that took ``LONGER`` times what is predicted, its iterations off by ``scatter`` in turns."""
    made = manifest(size, Layout(devices_per_node=data, data=data), warmup=1, iterations=8, repeat=repeat)
    whole = LONGER * predict_manifest(made, H100)["iteration_seconds"]
    facts = {**facts_of(made, H100), "ceilings": ceilings}
    derive_again(make_bundle(root, made, lambda at, rank: whole * (1 + scatter * (-1) ** at), facts=facts))
    return made


def learnt(folder):
    return calibrated(ASKED, folder).parameters


def with_and_without(root, ceilings):
    """The constants that runs teach which did not measure their device, and which did."""
    finished(root / "without")
    finished(root / "with", ceilings=ceilings)
    return learnt(root / "without").values, learnt(root / "with").values


def spread(parameters, phase):
    known = parameters.learnt or before(parameters, ASKED.hardware)
    place = known.names.index(f"phase {phase}")
    return float(np.sqrt(known.covariance[place][place]))


def distance(parameters, made):
    """Logarithm of what is predicted after over what was predicted before."""
    after, first = (predict_manifest(made, H100, each)["iteration_seconds"] for each in (parameters, ASKED.parameters))
    return float(np.log(after / first))


def test_a_run_moves_predictions_towards_what_it_measured_and_a_noisy_one_moves_and_narrows_them_less(tmp_path):
    made = finished(tmp_path / "quiet")
    finished(tmp_path / "noisy", scatter=0.6)
    quiet, noisy = (learnt(tmp_path / name) for name in ("quiet", "noisy"))
    assert 0.5 * np.log(LONGER) < distance(quiet, made) < np.log(LONGER), "towards what was measured, not beyond"
    assert distance(noisy, made) > 0
    assert spread(quiet, "train") < spread(noisy, "train") < spread(ASKED.parameters, "train")


def test_many_configurations_move_more_and_narrow_more_than_one(tmp_path):
    made = finished(tmp_path / "one")
    for size, data in (("1.3B", 1), ("1.3B", 2), ("1.3B", 4), ("1.3B", 8)):
        finished(tmp_path / "many", size, data)
    one, many = (learnt(tmp_path / name) for name in ("one", "many"))
    assert (one.learnt.configurations, many.learnt.configurations) == (1, 4)
    for repeat in (2, 3):
        finished(tmp_path / "one", repeat=repeat)
    again = learnt(tmp_path / "one").learnt
    assert (again.configurations, again.runs) == (1, 3), "repeats of one manifest are one configuration"
    assert all(abs(distance(each, made) - np.log(LONGER)) < 0.1 for each in (one, many))
    assert spread(many, "train") < spread(one, "train") < spread(ASKED.parameters, "train")


def test_a_plan_says_what_was_learnt_and_its_range_narrows(tmp_path):
    finished(tmp_path / "one")
    for data in (1, 2, 4, 8):
        finished(tmp_path / "many", data=data)
    plans = [calibrated(ASKED, tmp_path / name).plan([1]) for name in ("one", "many")]
    for plan, count in zip(plans, (1, 4), strict=True):
        assert plan.calibrated == count
        assert any(f"calibrated on your runs (runs: {count}" in note for note in plan.notes)
    for plan in (*plans, ASKED.plan([1])):
        assert all(option.low < option.samples_per_second < option.high for option in plan.options)
    wide, narrow = (plan.options[0].high / plan.options[0].low for plan in plans)
    assert 1 < narrow < wide


def test_measured_ceilings_move_shares_of_the_peak_most_of_the_way(tmp_path):
    without, measured = with_and_without(tmp_path, {"matmul_flops": 800e12, "copy_bytes_per_second": 3e12})
    for name, share in (("matrix_hopper", 800 / 989.5), ("memory_bandwidth", 3 / 3.35)):
        assert without[name] < measured[name] < share


@pytest.mark.parametrize(("dtype", "counts"), [("bfloat16", True), ("float16", True), ("float32", False)])
def test_a_measured_product_is_compared_with_the_peak_of_its_own_dtype(tmp_path, dtype, counts):
    without, measured = with_and_without(tmp_path, {"matmul_flops": 920e12, "matmul_dtype": dtype})
    assert (measured["matrix_hopper"] > 1.01 * without["matrix_hopper"]) == counts


def test_a_folder_without_a_fitting_run_is_told(tmp_path):
    finished(tmp_path)
    with pytest.raises(UsageError, match="no finished run of megatron"):
        calibrated(question(find_size("1.3B"), WORK, "H100-SXM-80GB", "megatron"), tmp_path)
