"""Tables of docs/planner.md that set the planner beside plain formulas and published scaling."""

from dataclasses import replace

import pytest

from suite.fitting.plain_memory import adam_rule, eleuther_formula, megatron_formula
from suite.fitting.published import Collection, csv_files, read_published
from suite.fitting.tables import row_tables
from suite.planner.parameters import load_parameters
from tests.fitting.rows import PUBLISHED


@pytest.fixture(scope="module")
def collection() -> Collection:
    return read_published(csv_files([PUBLISHED]))


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
