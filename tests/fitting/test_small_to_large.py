"""Small published runs teach what large ones take: the update is Bayesian, its bands are checked, the bars are told."""

import numpy as np
import pytest

from suite.fitting.published import csv_files, read_published
from suite.fitting.small_to_large import Source, sources, table
from suite.fitting.tables import timed
from tests.fitting.rows import PUBLISHED


@pytest.fixture(scope="module")
def found():
    """Of two sources: each takes a fit of all others."""
    every = timed(read_published(csv_files([PUBLISHED])))
    return sources(every, {"megatron-bridge", "llm-foundry"})


def test_small_runs_lower_the_errors_of_large_ones_and_narrow_their_bands(found):
    assert {one.name for one in found} == {"megatron-bridge", "llm-foundry"}
    for one in found:
        assert np.median(one.errors(1)) < np.median(one.errors(0))
        assert (one.deviations[1] < one.deviations[0]).all()


def test_the_page_has_their_lines(found):
    page = (PUBLISHED.parent / "arrangements.md").read_text(encoding="utf-8")
    for line in table(found)[2 : 2 + len(found)]:
        assert line in page


def made(off, deviation, taught=3):
    return Source(
        "a", taught, (np.array(off) * 2, np.array(off)), (np.full(len(off), 1.0), np.full(len(off), deviation))
    )


@pytest.mark.parametrize(("deviation", "answer"), [(0.1, "reached"), (0.01, "missed"), (1.0, "missed")])
def test_bands_that_hold_too_few_or_too_many_miss_their_bar(deviation, answer):
    off = [0.01, -0.02, 0.05, 0.1, -0.2]  # four of five within 1.28 times 0.1
    told = table([made(off, deviation)])[-1]
    assert told.endswith(f"asked: {answer}).")


def test_the_share_of_the_error_that_is_left_is_told():
    told = table([made([0.1, -0.1, 0.1, -0.1], 0.1)])[-1]
    assert "The median error after is 0.5" in told or "The median error after is 0.4" in told
