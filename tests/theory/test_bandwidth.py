"""Bytes that decoding reads."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.theory.bandwidth import ENGINE_SAMPLES, decode_bytes
from suite.theory.lengths import decode_batches
from suite.theory.parameters import parameter_count
from tests.theory.shapes import layout, sample_lengths, shapes, uneven, work, workloads


@given(size=shapes(), data=st.data(), rollouts=st.integers(1, 8))
def test_reads_add_up_step_by_step(size, data, rollouts):
    workload = data.draw(workloads(size.layers))
    count = parameter_count(size)
    weights = 2 * (size.layers * count.per_layer + count.final_norm + size.vocab * size.hidden)
    if size.experts is not None:
        left_out = Fraction(size.experts.count - size.experts.per_token, size.experts.count) ** rollouts
        weights -= 2 * (size.layers * count.experts_per_layer * left_out // 1)
    position = 2 * 2 * size.layers * size.kv_heads * size.head_dim
    expected = sum(
        weights + rollouts * (workload.prompt_tokens + step - 1) * position for step in range(1, workload.new_tokens)
    )
    assert decode_bytes(size, workload, work(rollouts), layout(), "bf16") == expected


def test_fp32_reads_twice_as_much_tensor_parallelism_halves_it_and_zero_changes_nothing():
    size, workload = find_size("1.3B"), find_workload("trlx-ds-chat")
    whole = decode_bytes(size, workload, work(), layout(), "bf16")
    assert decode_bytes(size, workload, work(), layout(), "fp32") == 2 * whole
    half = decode_bytes(size, workload, work(), layout(tensor=2), "bf16")
    assert 0 <= 2 * half - whole <= 255 * 4
    stages = (layout(data=4, zero_stage=stage) for stage in range(4))
    assert {decode_bytes(size, workload, work(), each, "bf16") for each in stages} == {whole}


@given(lengths=sample_lengths(12), rows=st.sampled_from([1, 3, 4, 12]))
def test_uneven_replicas_read_step_by_step_until_their_longest_sample_and_the_one_that_reads_most_counts(lengths, rows):
    size, count = find_size("8M-llama"), parameter_count(find_size("8M-llama"))
    share = Work(global_rollouts=12, replica_rollouts=rows, replica_batch=rows, micro_batch=1, lengths=lengths)
    weights = 2 * (size.layers * count.per_layer + count.final_norm + size.vocab * size.hidden)
    position = 2 * 2 * size.layers * size.kv_heads * size.head_dim
    samples = list(zip(lengths.prompt, lengths.response, strict=True))
    expected = []
    for first in range(0, 12, rows):
        replica, read = samples[first : first + rows], 0
        for step in range(1, max(response for _, response in replica)):
            read += weights + position * sum(prompt + step - 1 for prompt, response in replica if response > step)
        expected.append(read)
    assert decode_bytes(size, uneven(lengths), share, layout(data=12 // rows), "bf16") == max(expected)


@given(lengths=sample_lengths(12), places=st.integers(1, 14))
def test_an_engine_with_few_places_reads_the_weights_until_the_last_of_its_samples_is_complete(lengths, places):
    waiting, running, seen = [response - 1 for response in lengths.response], [], []
    while waiting or running:
        while waiting and len(running) < places:
            running += [left for left in [waiting.pop(0)] if left]
        seen += [len(running)] if running else []
        running = [left - 1 for left in running if left > 1]
    alike = [(prompt, response, 1) for prompt, response in zip(lengths.prompt, lengths.response, strict=True)]
    batches = decode_batches(alike, places)
    assert [samples for steps, samples in batches for _ in range(steps)] == seen
    if places >= 12:
        assert batches == decode_batches(alike)


def test_the_suites_own_vllm_reads_the_weights_again_for_the_samples_that_wait():
    size, many = find_size("8M-llama"), 2 * ENGINE_SAMPLES
    workload, count = find_workload("cpu"), parameter_count(find_size("8M-llama"))
    once, twice = (decode_bytes(size, workload, work(many), layout(), "bf16", each) for each in (None, ENGINE_SAMPLES))
    weights = 2 * (size.layers * count.per_layer + count.final_norm + size.vocab * size.hidden)
    assert twice - once == (workload.new_tokens - 1) * weights


def test_a_step_reads_the_experts_that_it_touches_and_expert_parallel_ranks_share_them():
    size, workload = find_size("Qwen3-30B-A3B"), find_workload("trlx-ds-chat")
    count, experts = parameter_count(size), 48 * 128 * 3 * 2048 * 768

    def weights(rollouts, **rest):
        plain = work(rollouts)
        cache = rollouts * 2 * 2 * 48 * 4 * 128 * sum(range(256, 256 + 255))
        return (decode_bytes(size, workload, plain, layout(**rest), "bf16") - cache) / (255 * 2)

    dense = count.total - count.embedding - experts
    assert weights(1) == pytest.approx(dense + experts * 8 / 128)
    assert weights(16) == pytest.approx(dense + experts * (1 - (120 / 128) ** 16))
    assert weights(4096) == dense + experts
    assert weights(16, data=8, expert=8) == pytest.approx(dense + experts / 8 * (1 - (120 / 128) ** 128))


def test_ranks_that_generate_alone_read_all_weights_for_their_share_of_the_samples():
    size, workload = find_size("8M-llama"), find_workload("cpu")
    split = Layout(devices_per_node=4, tensor=2, data=1, placement="split", generation_ranks=2)
    assert decode_bytes(size, workload, work(16), split, "bf16") == decode_bytes(
        size, workload, work(8), layout(), "bf16"
    )
