"""Bytes that decoding reads."""

from hypothesis import given
from hypothesis import strategies as st

from suite.spec.catalogue import find_size, find_workload
from suite.theory.bandwidth import decode_bytes
from suite.theory.parameters import parameter_count
from tests.theory.shapes import layout, shapes, work, workloads


@given(size=shapes(), data=st.data(), rollouts=st.integers(1, 8))
def test_reads_add_up_step_by_step(size, data, rollouts):
    workload = data.draw(workloads(size.layers))
    count = parameter_count(size)
    weights = 2 * (size.layers * count.per_layer + count.final_norm + size.vocab * size.hidden)
    position = 2 * 2 * size.layers * size.kv_heads * size.head_dim
    expected = sum(
        weights + rollouts * (workload.prompt_tokens + step - 1) * position for step in range(1, workload.new_tokens)
    )
    assert decode_bytes(size, workload, work(rollouts), layout(), "bf16") == expected


def test_one_new_token_needs_no_decode_step():
    workload = find_workload("cpu").model_copy(update={"new_tokens": 1})
    assert decode_bytes(find_size("1M"), workload, work(), layout(), "bf16") == 0


def test_every_step_of_a_large_model_reads_about_its_weights():
    size, workload = find_size("66B"), find_workload("trlx-ds-chat")
    read = decode_bytes(size, workload, work(1), layout(), "bf16")
    assert 1 < read / (255 * 2 * parameter_count(size).total) < 1.02


def test_fp32_reads_twice_as_much_and_tensor_parallelism_halves_it():
    size, workload = find_size("1.3B"), find_workload("trlx-ds-chat")
    whole = decode_bytes(size, workload, work(), layout(), "bf16")
    assert decode_bytes(size, workload, work(), layout(), "fp32") == 2 * whole
    half = decode_bytes(size, workload, work(), layout(tensor=2), "bf16")
    assert 0 <= 2 * half - whole <= 255 * 4


def test_zero_stages_do_not_change_what_is_read():
    size, workload = find_size("1.3B"), find_workload("trlx-ds-chat")
    reads = {decode_bytes(size, workload, work(), layout(data=4, zero_stage=stage), "bf16") for stage in range(4)}
    assert len(reads) == 1
