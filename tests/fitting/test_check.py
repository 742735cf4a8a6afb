"""The check against published rows: its targets, its shape, and that the fit gives the parameters that are shipped."""

import numpy as np
import pytest

from suite.fitting.check import run_check
from suite.fitting.fit import Rows, fit
from suite.fitting.memory_fit import fit_memory
from suite.fitting.published import csv_files, read_published
from suite.fitting.tables import timed
from suite.fitting.validate import constant, leave_out
from suite.planner.parameters import NAMES, load_parameters
from tests.fitting.rows import PUBLISHED, write_rows


@pytest.fixture(scope="module")
def collection():
    return read_published(csv_files([PUBLISHED]))


def test_the_shipped_parameters_are_those_that_the_fit_gives(collection):
    found, shipped = fit(Rows.of(timed(collection))), load_parameters()
    assert shipped.provenance.digest == collection.digest
    assert np.exp(found.vector) == pytest.approx([shipped.values[name] for name in NAMES], rel=1e-3)
    assert fit_memory(collection.entries) == pytest.approx(shipped.memory, rel=1e-3)


def test_the_check_says_what_programs_read(collection):
    check = run_check(collection, load_parameters()).model_dump(mode="json")
    for verdict in (check["overall"], *check["sources"].values()):
        assert {"rows", "median", "p90"} <= set(verdict["step_time"])
        assert {"rows", "median", "p90"} <= set(verdict["memory"])
        assert {"rows", "accuracy"} <= set(verdict["fit"])
    assert check["overall"]["step_time"]["median"] < 0.05
    assert check["overall"]["memory"]["median"] < 0.10
    assert check["overall"]["fit"]["accuracy"] >= 0.95
    known, new = (load_parameters().bands[f"{stack} stack"] for stack in ("known", "new"))
    assert known.median <= 0.05 and known.p90 <= 0.15 and new.median <= 0.10 and new.p90 <= 0.25


def test_a_source_that_was_left_out_of_the_fit_is_predicted_better_than_by_constants(collection):
    """The whole table of cross-validation is in docs/planner.md; this holds one source of it, with a margin."""
    entries = timed(collection)
    out = np.array([entry.source == "nvidia-dgxc" for entry in entries])
    held, plain = (
        leave_out(entries, lambda entry: "out" if entry.source == "nvidia-dgxc" else "in", *rival)
        for rival in ((), (constant("device", "precision"),))
    )
    seconds = np.array([entry.step_seconds for entry in entries])[out]
    own, rival = (np.median(np.abs(predicted[out] / seconds - 1)) for predicted in (held, plain))
    assert own < 0.10
    assert own < rival / 1.5


def test_a_stack_never_seen_is_predicted_from_physics_alone(tmp_path):
    check = run_check(read_published([write_rows(tmp_path / "a.csv")]), load_parameters())
    assert check.overall.step_time.rows == 1
    assert check.overall.step_time.median < 0.4
    assert check.overall.fit.accuracy is None
