"""Tables of docs/planner.md that set the planner beside plain formulas and published scaling."""

from dataclasses import replace

import numpy as np
import pytest

from suite.fitting.check import Check, fitted, run_check
from suite.fitting.fit import Rows
from suite.fitting.plain_memory import adam_rule, eleuther_formula, megatron_formula, plain_tables
from suite.fitting.published import Collection, csv_files, read_published
from suite.fitting.published_scaling import predicted_by, scaling_points, scaling_table
from suite.fitting.tables import row_tables
from suite.fitting.zero_check import zero_entries, zero_table
from suite.planner.parameters import load_parameters
from tests.fitting.rows import PUBLISHED


@pytest.fixture(scope="module")
def collection() -> Collection:
    return read_published(csv_files([PUBLISHED]))


@pytest.fixture(scope="module")
def check(collection: Collection) -> Check:
    return run_check(collection, load_parameters())


@pytest.fixture(scope="module")
def measured(collection):
    """Llama 3 8B on eight devices under FSDP, two sequences of 8,192 tokens each, operators recomputed."""
    return next(entry for entry in collection.entries if entry.config == "tt-8b-8-0")


@pytest.mark.slow
def test_the_page_holds_the_tables_that_are_printed(collection):
    """Those of cross-validation take half a minute: `make planner-check` compares these too."""
    page = (PUBLISHED.parent / "planner.md").read_text(encoding="utf-8")
    parameters = load_parameters()
    tables = row_tables(collection, csv_files([PUBLISHED]), parameters)
    assert len(tables) == 6
    for table in tables:
        assert table in page


def test_zero_3_of_deepspeed_is_predicted_from_the_gathers_of_other_stacks(collection):
    entries = zero_entries(csv_files([PUBLISHED]))
    assert len(entries) == 35
    assert not {entry.source for entry in entries} & {entry.source for entry in collection.entries}
    ratios = fitted(load_parameters()).predict(Rows.of(entries)) / np.array([entry.step_seconds for entry in entries])
    assert np.median(abs(ratios - 1)) < 0.15
    assert "in no fit" in zero_table(entries, load_parameters())
    assert "No published" in zero_table([], load_parameters())


def test_the_formulas_are_those_published(measured):
    tokens, hidden, layers, ffn, vocab = 2 * 8192, 4096, 32, 14336, 128256
    activations = tokens * hidden * layers
    assert eleuther_formula(measured) == pytest.approx(8.03e9 * 18 / 8 + 34 * activations)
    ends = tokens * (8 + hidden + 4 * (hidden + vocab))
    states = 8.03e9 * (6 + 12 / 8)
    assert megatron_formula(measured) == pytest.approx(states + activations * (18 + 4 * ffn / hidden) + ends)
    assert adam_rule(measured) == pytest.approx(16 * 8.03e9 / 8)
    blank = replace(measured, cells={**measured.cells, "params_b": ""})
    assert adam_rule(blank) is megatron_formula(blank) is eleuther_formula(blank) is None


def test_the_planner_beats_the_plain_formulas_where_memory_was_measured(collection, check):
    lines = plain_tables(collection.entries, check).splitlines()
    errors = [float(line.split("|")[-2].strip(" %")) for line in lines if line.endswith("% |")]
    assert len(errors) == 4
    assert errors[-1] < min(errors[:-1])


def test_efficiency_against_the_smallest_is_a_ratio_of_rates(collection, check):
    points = scaling_points(collection.entries, predicted_by(check))
    kinds = {(point.source, point.scaling) for point in points}
    assert {scaling for _, scaling in kinds} == {"weak", "strong"}
    assert scaling_table(collection.entries, check).count("\n| ") == 1 + len(kinds), "a line for each, and the head"
    assert all(point.times > 1 and 0.5 < point.predicted <= 1.1 and 0.5 < point.published < 1.5 for point in points)
