"""The simulator beside published scaling curves: what is simulated of a row, and what the table says of misses."""

import numpy as np
import pytest

from suite.fitting.check import fitted
from suite.fitting.fit import Rows
from suite.fitting.published import csv_files, read_published
from suite.fitting.published_scaling import ScalingPoint
from suite.fitting.simulated_scaling import _verdict, simulated_seconds
from suite.planner.parameters import load_parameters
from tests.fitting.rows import PUBLISHED

PARAMETERS = load_parameters()


@pytest.fixture(scope="module")
def entries():
    return [entry for entry in read_published(csv_files([PUBLISHED])).entries if entry.job and entry.step_seconds]


def test_one_stage_takes_what_the_closed_form_says(entries):
    alone = [entry for entry in entries if entry.job["pipeline"] == 1][:40]
    closed = fitted(PARAMETERS).predict(Rows.of(alone))
    assert [simulated_seconds(entry, PARAMETERS) for entry in alone] == pytest.approx(closed.tolist())


def test_a_pipeline_is_simulated_pass_by_pass(entries):
    """The closed form multiplies its bubble with a fitted factor, which the simulation has not."""
    deep = sorted(
        (entry for entry in entries if entry.job["pipeline"] >= 4), key=lambda entry: entry.job["global_batch"]
    )[:3]
    closed = fitted(PARAMETERS).predict(Rows.of(deep))
    ratios = np.array([simulated_seconds(entry, PARAMETERS) for entry in deep]) / closed
    assert len(deep) > 1 and (abs(ratios - 1) > 1e-6).any() and (abs(ratios - 1) < 0.15).all()


def test_what_is_missed_is_named_and_the_bar_is_told():
    same = (("a", "first"), ("a", "second"))
    good = [ScalingPoint("a", "weak", 2, 0.95, 0.97, same)] * 3
    bad = ScalingPoint("a", "weak", 4, 0.70, 0.97, (("a", "first"), ("a", "third")))
    told = _verdict([*good, bad])
    assert "75 % within (80 % asked: missed)" in told
    assert "third at 4 times the devices, published 0.70, simulated 0.97" in told
    assert "reached" in _verdict(good) and "None is missed" in _verdict(good)
