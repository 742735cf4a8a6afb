"""Formulas of training: published tables, exact identities, directions; one arithmetic with suite/theory's counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.planner.formulas import blocks, generation, memory
from suite.planner.formulas.communication import group_bandwidth, overlapped
from suite.planner.formulas.memory import fsdp_bytes, megatron_bytes, zero_bytes
from suite.planner.formulas.pipeline import in_flight
from suite.spec.catalogue import find_size
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.bandwidth import decode_bytes
from suite.theory.flops import iteration_flops
from suite.theory.parameters import layer_matrix_elements, parameter_count

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
    outside = memory.outside_bytes(s * b, h, split, 1)
    inside = memory.inside_bytes(s * b, h, 4 * h, 1, 0, tensor)
    scores = memory.score_bytes(s * b, s, a, tensor)
    kept = memory.kept_bytes(np.array([mode]), outside, inside, scores, 2 * s * b * h / split, 0.5)
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


LADDER = ("1.3B", "6.7B", "13B", "20B", "33B", "66B")
GROUPED = ("Llama-3.1-8B", "Llama-3.1-70B")
SHAPES = [find_size(name) for name in (*LADDER, *GROUPED)]
#: tensor and pipeline degrees
DEGREES = ((1, 1), (2, 1), (8, 1), (1, 2), (4, 4), (8, 8))
#: those of a shape that ``suite.planner.space`` considers
LAYOUTS = [
    pytest.param(shape, tensor, pipeline, id=f"{shape.name}-tp{tensor}-pp{pipeline}")
    for shape in SHAPES
    for tensor, pipeline in DEGREES
    if not (shape.heads % tensor or shape.kv_heads % tensor or shape.ffn % tensor or shape.layers % pipeline)
]
LENGTHS = ((256, 256), (1, 2), (1024, 17))
ROLLOUTS = 16

cases = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
layouts = pytest.mark.parametrize(("shape", "tensor", "pipeline"), LAYOUTS)
lengths = pytest.mark.parametrize(("prompt", "new"), LENGTHS)


def columns(*numbers: float) -> tuple[np.ndarray, ...]:
    """As the planner passes them: floats in arrays."""
    return tuple(np.array([float(number)]) for number in numbers)


def elements(shape: Shape) -> np.ndarray:
    hidden, ffn, kv_share, gated = columns(shape.hidden, shape.ffn, shape.kv_heads / shape.heads, shape.rotary)
    return blocks.matrix_elements(hidden, ffn, kv_share, gated)


def workload(prompt: int, new: int, **rest: object) -> Workload:
    return Workload(name="counts", prompt_tokens=prompt, new_tokens=new, rollouts=ROLLOUTS, micro_batch=4, **rest)


@layouts
@lengths
def test_bytes_read_to_decode(shape: Shape, tensor: int, pipeline: int, prompt: int, new: int) -> None:
    """The array formula leaves out biases and norms, which are read too: below 0.1 % of the weights."""
    layout = Layout(devices_per_node=tensor * pipeline, tensor=tensor, pipeline=pipeline, data=1)
    work = Work(global_rollouts=ROLLOUTS, replica_rollouts=ROLLOUTS, replica_batch=ROLLOUTS, micro_batch=4)
    exact = decode_bytes(shape, workload(prompt, new), work, layout, "bf16")
    layers, width = shape.layers // pipeline, shape.kv_heads * shape.head_dim
    numbers = (*columns(layers), elements(shape), *columns(shape.hidden, shape.vocab, tensor))
    each_step = generation.weight_read_bytes(*numbers)
    cache = generation.cache_read_bytes(*columns(ROLLOUTS, prompt, new, layers, width, tensor))
    count = parameter_count(shape)
    vectors = layers * (count.per_layer - layer_matrix_elements(shape)) + count.final_norm
    arrays = (new - 1) * each_step[0] + cache[0]
    # the exact count rounds up what tensor parallelism does not divide: below one parameter of 2 bytes a step
    assert 0 <= exact - arrays - (new - 1) * 2 * vectors / tensor < (new - 1) * 2
    assert 2 * vectors / tensor < 1e-3 * each_step[0]


@cases
@lengths
@pytest.mark.parametrize("attention", ["full", "causal"])
def test_flops_of_scoring(shape: Shape, prompt: int, new: int, attention: str) -> None:
    """Of a causal mask the arrays take half the square; exactly, the diagonal is computed too (2 s h a block)."""
    exact = iteration_flops(shape, workload(prompt, new), ROLLOUTS, attention=attention)  # type: ignore[arg-type]
    causal, sequence = float(attention == "causal"), prompt + new
    tokens, length, hidden, one = columns(ROLLOUTS * sequence, sequence, shape.hidden, 1)
    block = blocks.linear_flops(tokens, elements(shape), one)
    block = block + blocks.attention_flops(tokens, length, hidden, one, *columns(causal))
    head = blocks.head_flops(*columns(ROLLOUTS * new, shape.hidden, shape.vocab, 1))
    diagonal = causal * 2 * ROLLOUTS * sequence * shape.hidden
    assert (shape.layers * (block + diagonal) + head)[0] == exact.reference
    assert exact.train - 3 * exact.score == 0 and exact.score > exact.reference


@cases
@lengths
def test_flops_of_decoding(shape: Shape, prompt: int, new: int) -> None:
    """The arrays hold the matrices; attention is in the exact count alone, because the cache's bytes bound it."""
    exact = iteration_flops(shape, workload(prompt, new), ROLLOUTS).generate_decode
    numbers = (*columns(ROLLOUTS, shape.layers), elements(shape), *columns(shape.hidden, shape.vocab, 1))
    steps = new - 1
    pairs = steps * prompt + steps * (steps + 1) // 2
    attention = ROLLOUTS * shape.layers * 4 * shape.hidden * pairs
    assert steps * generation.step_flops(*numbers)[0] + attention == exact
