"""Runs on a CPU are predicted from what they measured of their machine: on the real ones of docs/results/cpu."""

from pathlib import Path
from statistics import median

import numpy as np
import pytest

from suite.bundle.store import Bundle
from suite.fitting import own_runs
from suite.fitting.bayes import FOUR_FIFTHS, Known, updated
from suite.planner.own_machine import PRIORS, load_learnt, machine_of, predict_run
from suite.report.facts.expected import expected_of
from tests.synthetic import synthetic_manifest

RUNS = Path(__file__).resolve().parents[2] / "docs/results/cpu/runs"
FIRST = [path for path in sorted(RUNS.iterdir()) if path.name.endswith("-r1")]


def run(path):
    bundle = Bundle(path)
    return bundle.manifest(), bundle.record()


def with_worker(record, **facts):
    environment = record.environment.model_copy(update={"worker": {**record.environment.worker, **facts}})
    return record.model_copy(update={"environment": environment})


def test_every_published_run_on_a_cpu_has_a_prediction_with_a_band():
    ratios = []
    for path in FIRST:
        manifest, record = run(path)
        found = predict_run(manifest, record)
        assert found["low"] < found["samples_per_second"] < found["high"]
        assert sum(found["phases"].values()) == pytest.approx(found["iteration_seconds"])
        ratios.append(record.throughput.samples_per_second.value / found["samples_per_second"])
        assert record.predicted is None, "what records hold stays what it was"
        expected = expected_of(manifest, [record])
        assert expected.computed and expected.rate.value == pytest.approx(found["samples_per_second"])
    assert len(ratios) == 12 and median(abs(ratio - 1) for ratio in ratios) < 0.15


@pytest.mark.parametrize(
    "facts",
    [
        {"ceilings": None},
        {"ceilings": {"matmul_flops": "fast", "copy_bytes_per_second": 1e10}},
        {"ceilings": {"matmul_flops": -1.0, "copy_bytes_per_second": 1e10}},
        {"ceilings": {"matmul_flops": 1e10}},
    ],
)
def test_a_run_that_measured_no_rate_is_not_predicted(facts):
    manifest, record = run(FIRST[0])
    assert predict_run(manifest, with_worker(record, **facts)) is None
    assert expected_of(manifest, [with_worker(record, **facts)]) is None


def test_what_a_stranger_wrote_of_its_network_breaks_nothing():
    manifest, record = run(FIRST[-1])
    for network in (None, 7, {"measurements": 7}, {"measurements": [None, {"pattern": "all_reduce", "sizes": [3]}]}):
        assert machine_of(with_worker(record, network=network)).latency > 0
        assert predict_run(manifest, with_worker(record, network=network))["samples_per_second"] > 0


def test_other_work_and_other_devices_are_not_predicted_from_ceilings():
    _, record = run(FIRST[0])
    assert predict_run(synthetic_manifest(backend="other"), record) is None
    assert predict_run(synthetic_manifest(backend="deepspeed", device="cuda", precision="bf16"), record) is None


def test_small_runs_teach_what_larger_ones_take():
    """The experiment of docs/planner.md: the smallest sizes on one rank, then all else."""
    every = own_runs.configurations([RUNS])
    rows = own_runs.experiment(every, own_runs.small_ones(every))
    kept = [row for row in rows if not row.taught]
    before, after = ([abs(getattr(row, name) / row.one.total - 1) for row in kept] for name in ("before", "after"))
    assert len(kept) == 8 and median(after) < median(before) / 2
    assert own_runs.table(rows)[2].startswith("| deepspeed 1M on 1 (taught) | ")
    assert set(load_learnt().effects) == set(own_runs.Constants({"deepspeed", "megatron"}).effects)


def test_runs_of_another_machine_teach_before_the_first_of_this_one():
    """Two ranks are predicted from one: how ranks of a machine disturb each other, only others' runs can tell."""
    every = own_runs.configurations([RUNS])
    deepspeed, megatron = ([one for one in every if one.name.startswith(name)] for name in ("deepspeed", "megatron"))
    alone, taught = (
        [
            abs(row.after / row.one.total - 1)
            for row in own_runs.experiment(megatron, own_runs.on_one_rank(megatron), others)
            if not row.taught
        ]
        for others in ([], deepspeed)
    )
    assert len(alone) == len(taught) == 3 and median(taught) < median(alone)
    constants = own_runs.Constants({"deepspeed", "megatron"})
    before, elsewhere = constants.before(), constants.elsewhere(deepspeed)
    contention = list(PRIORS).index("contention")
    assert elsewhere.mean[contention] > before.mean[contention]
    assert (np.diag(elsewhere.covariance) >= np.diag(before.covariance) / 4).all()


def test_the_posterior_of_a_linear_model_is_the_textbooks():
    """Two unknown factors, three products of them: the normal equations with the prior's precision added."""
    slopes = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    known = Known.before([2.0, 3.0], [0.5, 0.2])
    measured = np.log([2.2, 7.0, 8.0])
    after = updated(known, lambda vector: slopes @ vector, measured, 0.1)
    precision = np.diag([1 / 0.25, 1 / 0.04]) + slopes.T @ slopes / 0.01
    mean = np.linalg.solve(precision, np.diag([4.0, 25.0]) @ known.mean + slopes.T @ measured / 0.01)
    assert after.mean == pytest.approx(mean) and after.covariance == pytest.approx(np.linalg.inv(precision))
    wide, narrow = (each.deviation(lambda vector: slopes @ vector) for each in (known, after))
    assert (narrow < wide).all() and pytest.approx(1.28155, abs=1e-4) == FOUR_FIFTHS
