"""Small published runs teach what large ones take: the update is Bayesian, its bands are checked, the bars are told."""

from types import SimpleNamespace

import numpy as np
import pytest

from suite.fitting.bayes import Known
from suite.fitting.published import csv_files, read_published
from suite.fitting.small_to_large import WIDER, Source, Task, chosen, judged, sources, table
from suite.fitting.tables import timed
from suite.planner.learnt import FOUR_FIFTHS
from suite.planner.parameters import NAMES
from tests.fitting.rows import PUBLISHED

#: What the page's fit chooses for both on all other sources.
WIDENED = 1.5


@pytest.fixture(scope="module")
def found():
    """Of two sources: each takes a fit of all others."""
    every = timed(read_published(csv_files([PUBLISHED])))
    return sources(every, {"megatron-bridge", "llm-foundry"}, {"megatron-bridge": WIDENED, "llm-foundry": WIDENED})


@pytest.mark.slow
def test_the_page_has_their_errors(found):
    page = (PUBLISHED.parent / "arrangements.md").read_text(encoding="utf-8")
    for line in table(found)[2 : 2 + len(found)]:
        assert line[: line.index("%")].rpartition("|")[0] in page  # widths of bands are judged on the other sources


def made(off, deviation, taught=3):
    return Source(
        "a", taught, 1.5, (np.array(off) * 2, np.array(off)), (np.full(len(off), 1.0), np.full(len(off), deviation))
    )


@pytest.mark.parametrize(("deviation", "answer"), [(0.1, "reached"), (0.01, "missed"), (1.0, "missed")])
def test_bands_that_hold_too_few_or_too_many_miss_their_bar(deviation, answer):
    off = [0.01, -0.02, 0.05, 0.1, -0.2]  # four of five within 1.28 times 0.1
    told = table([made(off, deviation)])[-1]
    assert told.endswith(f"asked: {answer}).")


def test_the_share_of_the_error_that_is_left_is_told():
    told = table([made([0.1, -0.1, 0.1, -0.1], 0.1)])[-1]
    assert "The median error after is 0.5" in told or "The median error after is 0.4" in told


class Line:
    """A stack of one constant (and as many that nothing depends on as the fit has), linear in it."""

    def model(self, rows):
        return lambda vector: vector[0] * rows.work + 1.0


def task(off, noise_weight=1.0):
    """Constants known to within 0.1; runs that lie ``off`` from what is predicted."""
    count = len(NAMES)
    rows = SimpleNamespace(seconds=np.exp(1.0 + np.array(off)), weights=np.full(len(off), noise_weight))
    rows.work = np.array([1.0, 2.0, 3.0])
    return Task(rows, rows, Line(), Known(np.zeros(count), 0.01 * np.eye(count)))


@pytest.mark.parametrize(("off", "least", "most"), [([0.05, 0.1, 0.15], 1.0, 1.0), ([0.4, 0.8, 1.2], 3.0, max(WIDER))])
def test_only_runs_further_off_than_the_fit_says_ask_for_wider_constants(off, least, most):
    assert least <= WIDER[int(np.argmax(task(off).evidence))] <= most


def test_only_the_spread_of_constants_is_widened_and_it_is_chosen_on_the_other_sources():
    near, far = task([0.05, 0.1, 0.15]), task([0.4, 0.8, 1.2])
    assert near.widened(2.0).covariance[0, 0] == pytest.approx(0.04)
    assert chosen({"near": near, "far": far}, "near") >= 3.0
    assert chosen({"near": near, "far": far}, "far") == 1.0
    assert chosen({"near": near}, "near") == 1.0


def test_widths_come_from_what_held_of_the_other_sources():
    near, far = made([0.01] * 5, 0.1), made([0.3] * 5, 0.1)
    narrow, wide = judged([far, near])
    assert narrow.deviations[1] == pytest.approx(np.full(5, 0.1 * 0.1 / FOUR_FIFTHS))
    assert wide.deviations[1] == pytest.approx(np.full(5, 0.1 * 3 / FOUR_FIFTHS))
    assert (wide.deviations[0] == near.deviations[0]).all()
    assert judged([near])[0].deviations[1] == pytest.approx(near.deviations[1])
