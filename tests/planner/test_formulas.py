"""Formulas of training: published tables, exact identities, and the directions they may move in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.planner.formulas import activations
from suite.planner.formulas.communication import group_bandwidth, overlapped
from suite.planner.formulas.pipeline import in_flight
from suite.planner.formulas.recipes import fsdp_bytes, megatron_bytes, zero_bytes

POSITIVE = st.floats(1e-3, 1e6)


@pytest.mark.parametrize(
    ("tensor", "sequence_parallel", "mode", "formula"),
    [
        (1, False, 0, lambda a, s, h, t: 34 + 5 * a * s / h),
        (8, False, 0, lambda a, s, h, t: 10 + 24 / t + 5 * a * s / (h * t)),
        (8, True, 0, lambda a, s, h, t: (34 + 5 * a * s / h) / t),
        (8, False, 1, lambda a, s, h, t: 10 + 24 / t),
        (8, True, 1, lambda a, s, h, t: 34 / t),
        (8, False, 3, lambda a, s, h, t: 2),
    ],
)
def test_activations_are_table_2_of_korthikanti(tensor, sequence_parallel, mode, formula):
    a, s, h, b = 64, 2048, 6144, 4
    split = tensor if sequence_parallel else 1
    outside = activations.outside_bytes(s * b, h, split, 1)
    inside = activations.inside_bytes(s * b, h, 4 * h, 1, 0, tensor)
    scores = activations.score_bytes(s * b, s, a, tensor)
    kept = activations.kept_bytes(np.array([mode]), outside, inside, scores, 2 * s * b * h / split, 0.5)
    assert kept[0] == pytest.approx(s * b * h * formula(a, s, h, tensor))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (zero_bytes(1, 64), 31.4 / 7.5),  # table 1 of arXiv 1910.02054, of 7.5e9 parameters
        (zero_bytes(2, 64), 16.6 / 7.5),
        (zero_bytes(3, 64), 1.88 / 7.5),
        (megatron_bytes(0, 8, 0), 18),  # README of Megatron-LM, distributed optimizer
        (megatron_bytes(0, 8, 1), 20),
        (megatron_bytes(1, 8, 0), 6 + 12 / 8),
        (megatron_bytes(1, 8, 1), 4 + 16 / 8),
        (fsdp_bytes(8, 0, 0), 2),
        (fsdp_bytes(8, 1, 0), 4),  # the weights stay gathered
        (fsdp_bytes(8, 1, 1), 8),
    ],
)
def test_bytes_of_a_parameter_are_those_published(held, expected):
    assert sum(held) == pytest.approx(expected, rel=0.01)


def test_cards_of_a_node_add_up_for_a_group_that_spans_nodes():
    assert float(group_bandwidth(64, 1, 8, 450e9, 25e9)) == 200e9
    assert float(group_bandwidth(64, 8, 8, 450e9, 25e9)) == 25e9
    assert float(group_bandwidth(8, 1, 8, 450e9, 25e9)) == 450e9


@given(POSITIVE, POSITIVE)
def test_overlap_costs_between_nothing_and_all_of_the_communication(compute, communication):
    extra = float(overlapped(np.array(compute), np.array(communication), 4.0))
    assert max(0.0, communication - compute) - 1e-6 <= extra <= communication * (1 + 1e-9)


def test_a_pipeline_holds_as_many_micro_batches_as_it_has_stages_and_more_when_interleaved():
    assert float(in_flight(8.0, 1.0, 64.0, 7.0)) == 8
    assert float(in_flight(8.0, 1.0, 64.0, 0.0)) == 1
    assert float(in_flight(8.0, 1.0, 2.0, 7.0)) == 2
    assert float(in_flight(35.0, 3.0, 280.0, 34.0)) == pytest.approx(35 * (1 + 34 / (35 * 3)))
    assert float(in_flight(8.0, 4.0, 8.0, 7.0)) == 8, "no more than there are"
    assert float(in_flight(8.0, 4.0, 64.0, 0.0)) == pytest.approx((3 * 8 + 1) / 4), "the last interleaved stage"
