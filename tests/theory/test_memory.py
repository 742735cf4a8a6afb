"""Bytes: the memory floor by published tables and its own arithmetic, and what decoding reads."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths
from suite.theory.bandwidth import ENGINE_SAMPLES, decode_bytes
from suite.theory.lengths import decode_batches
from suite.theory.memory import generating_floor, memory_floor
from suite.theory.parameters import parameter_count, trainable_count, value_head_parameters
from suite.theory.shards import Stage, stages, states
from tests.theory.shapes import layout, learning_by, sample_lengths, shapes, uneven, work, workloads

PRECISIONS = ("fp32", "bf16", "fp16")
LARGE, CHAT = find_size("6.7B"), find_workload("trlx-ds-chat")
SMALL, CPU = find_size("8M-llama"), find_workload("cpu")

#: ZeRO (arXiv 1910.02054), table 1, of 7.5e9 parameters: GB (1e9) of model states per device by stage, and across
#: them by data parallel degree.
ZERO_DEGREES = (1, 4, 16, 64, 256, 1024)
ZERO_TABLE_1 = {
    1: (120, 52.5, 35.6, 31.4, 30.4, 30.1),
    2: (120, 41.3, 21.6, 16.6, 15.4, 15.1),
    3: (120, 30, 7.5, 1.88, 0.47, 0.12),
}


def states_of(parameters, each, precision):
    whole = Stage(first=True, last=True, layers=1, trainable_layers=1, trainable=parameters, frozen=0, reference=0)
    held = states(whole, each, precision)
    return held.weights + held.gradients + held.optimizer


def test_model_states_are_those_of_the_zero_paper_and_sixteen_bytes_a_parameter_on_one_rank():
    for stage, published in ZERO_TABLE_1.items():
        held = [states_of(int(7.5e9), layout(data=degree, zero_stage=stage), "fp16") / 1e9 for degree in ZERO_DEGREES]
        assert held == pytest.approx(published, rel=0.005, abs=0.005), stage
    assert {states_of(1000, layout(), precision) for precision in PRECISIONS} == {16_000}


@given(size=shapes(), data=st.data())
def test_stages_add_up_to_the_model_and_the_copy_of_a_tied_embedding(size, data):
    workload = data.draw(workloads(size.layers)).model_copy(update={"reference": "full"})
    pipeline = data.draw(st.sampled_from([part for part in range(1, size.layers + 1) if size.layers % part == 0]))
    parts = stages(size, workload, layout(pipeline=pipeline))
    count = parameter_count(size)
    copy = count.embedding if pipeline > 1 and size.tied_embeddings else 0
    assert sum(part.trainable for part in parts) == trainable_count(size, workload.trainable_layers)
    assert sum(part.trainable + part.frozen for part in parts) == count.with_value_head + copy
    assert sum(part.reference for part in parts) == count.total + copy
    assert sum(part.layers for part in parts) == size.layers


@given(size=shapes(), data=st.data(), micro=st.sampled_from([1, 4, 16]), precision=st.sampled_from(PRECISIONS))
def test_the_floor_is_the_largest_phase_and_the_sum_of_its_parts(size, data, micro, precision):
    floor = memory_floor(size, data.draw(workloads(size.layers)), work(16, micro), layout(), precision)
    assert floor.bytes == sum(floor.parts.values()) == max(floor.by_phase.values()) == floor.by_phase[floor.phase]
    assert list(floor.by_phase) == ["generate", "score", "reference", "reward", "train"]
    assert floor.by_phase["train"] >= floor.by_phase["score"] >= floor.by_phase["reward"]


def test_a_floor_worked_out_by_hand():
    """125M, bf16, everything trains, two micro batches of 4 sequences of 256 + 256 tokens on one device."""
    floor = memory_floor(find_size("125M"), CHAT, work(8, 4), layout(), "bf16")
    reference, policy = 125_226_240, 125_226_240 + 1_182_721
    assert floor.phase == "train"
    assert floor.parts == {
        "weights": 2 * policy,
        "reference": 2 * reference,
        "optimizer": 12 * policy,
        "gradients": 2 * policy,
        "activations": 2 * 4 * 512 * 768 * 12,
        "logits": 4 * 4 * 256 * 50257,
    }
    assert floor.by_phase["generate"] == 14 * policy + 2 * reference + 2 * 12 * 768 * 2 * 8 * 511


def test_all_rollouts_of_a_replica_hold_their_keys_and_values_at_once_and_in_old_bundles_a_micro_batch_does():
    held = layout(data=8, zero_stage=3)
    old, new = (memory_floor(LARGE, CHAT, work(64, 4), held, "bf16", rules) for rules in (1, 2))
    assert (old.phase, new.phase) == ("train", "generate")
    assert new.parts["kv_cache"] == 64 * 511 * 2 * 32 * 4096 * 2
    assert new.by_phase["generate"] - old.by_phase["generate"] == 60 * 511 * 2 * 32 * 4096 * 2
    assert all(new.by_phase[phase] == old.by_phase[phase] for phase in new.by_phase if phase != "generate")


@given(size=shapes(), data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_each_zero_stage_freezing_and_a_hydra_reference_lower_the_floor_or_leave_it(size, data, precision):
    whole = data.draw(workloads(size.layers)).model_copy(update={"trainable_layers": None, "reference": "full"})
    frozen = whole.model_copy(update={"trainable_layers": data.draw(st.integers(0, size.layers))})
    hydra = frozen.model_copy(update={"reference": "hydra"})
    ways = [(each, layout()) for each in (whole, frozen, hydra)]
    for each in (ways, [(frozen, layout(data=4, zero_stage=stage)) for stage in range(4)]):
        floors = [memory_floor(size, workload, work(), where, precision).bytes for workload, where in each]
        assert floors == sorted(floors, reverse=True)
    (held,), count = stages(size, hydra, layout()), parameter_count(size)
    assert held.reference == frozen.trainable_layers * count.per_layer + count.final_norm


def test_megatrons_offloaded_optimizer_leaves_the_gradients_on_the_device_and_old_bundles_did_not_count_them():
    held = layout(distributed_optimizer=True, offload_optimizer=True)
    old, new = (memory_floor(LARGE, CHAT, work(8, 4), held, "bf16", rules) for rules in (1, 2))
    trained = trainable_count(LARGE, None)
    assert new.by_phase["train"] - old.by_phase["train"] == new.parts["gradients"] == 2 * trained
    assert old.parts["optimizer"] == new.parts["optimizer"] == 0
    zero = memory_floor(LARGE, CHAT, work(8, 4), layout(zero_stage=2, offload_optimizer=True), "bf16")
    assert "gradients" not in zero.parts or zero.parts["gradients"] == 0


def test_sequence_parallelism_shares_the_stored_inputs():
    layouts = (layout(tensor=4, sequence_parallel=each) for each in (False, True))
    plain, shared = (memory_floor(LARGE, CHAT, work(), each, "bf16").parts["activations"] for each in layouts)
    assert plain == 4 * shared


def test_without_values_and_reference_neither_is_held():
    size, learning = find_size("1M-llama"), [learning_by(name, CPU) for name in ("ppo", "rloo", "grpo")]
    held = [memory_floor(size, each, work(), layout(), "bf16") for each in learning]
    head, policy = value_head_parameters(size.hidden), parameter_count(size).total
    assert [floor.parts["weights"] for floor in held] == [2 * (policy + head), 2 * policy, 2 * policy]
    assert [floor.parts.get("reference") for floor in held] == [2 * policy, 2 * policy, None]
    assert ["reference" in floor.by_phase for floor in held] == [True, True, False]
    assert held[2].by_phase["reward"] == (2 + 12) * policy


@given(lengths=sample_lengths(12), rows=st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_the_cache_of_uneven_samples_is_that_of_the_fullest_moment_of_the_fullest_replica(lengths, rows):
    size, share = find_size("1M-llama"), work(12, 1, 12 // rows, lengths=lengths)
    floor = memory_floor(size, uneven(lengths), share, layout(data=12 // rows), "bf16")
    samples = list(zip(lengths.prompt, lengths.response, strict=True))
    held = max(
        sum(prompt + step for prompt, response in samples[first : first + rows] if response > step)
        for first in range(0, 12, rows)
        for step in range(40)
    )
    cache = floor.by_phase["generate"] - floor.by_phase["reward"]
    assert cache == held * 2 * size.layers * size.kv_heads * size.head_dim * 2


@given(lengths=sample_lengths(12), micro=st.sampled_from([1, 2, 3, 6]), order=st.permutations(range(12)))
def test_no_order_of_uneven_samples_has_less_logits_and_inputs_than_the_floor(lengths, micro, order):
    size = find_size("1M-llama")
    floor = memory_floor(size, uneven(lengths), work(12, micro, lengths=lengths), layout(), "bf16")
    batches = [order[first : first + micro] for first in range(0, 12, micro)]
    logits = max(sum(lengths.response[index] for index in batch) for batch in batches)
    tokens = max(sum(lengths.prompt[index] + lengths.response[index] for index in batch) for batch in batches)
    assert floor.by_phase["score"] - floor.by_phase["reward"] <= 4 * size.vocab * logits
    gradients, inputs = 2 * trainable_count(size, None), 2 * size.hidden * size.layers * tokens
    most = max(gradients, inputs + 4 * size.vocab * logits) + (gradients if micro < 12 else 0)
    assert floor.by_phase["train"] <= floor.by_phase["reward"] + most


def test_alike_samples_have_the_floor_of_even_ones_whatever_the_layout():
    alike = SampleLengths(prompt=(16,) * 16, response=(32,) * 16)
    even = CPU.model_copy(update={"prompt_tokens": 16, "new_tokens": 32})
    layouts = [layout(), layout(data=4, zero_stage=3), layout(tensor=2, sequence_parallel=True), layout(pipeline=2)]
    for each in layouts:
        share, drawn = (work(replicas=each.data, **lengths) for lengths in ({}, {"lengths": alike}))
        floor = memory_floor(SMALL, even, share, each, "bf16")
        for balance in (False, True):
            dealt = each.model_copy(update={"balance": balance})
            assert memory_floor(SMALL, uneven(alike), drawn, dealt, "bf16") == floor


def test_a_generation_engine_holds_a_second_copy_and_a_cache_while_it_is_awake():
    engines = ({}, {"generation": "vllm"}, {"generation": "vllm", "engine_sleep": True})
    plain, awake, asleep = (memory_floor(SMALL, CPU, work(), layout(**rest), "bf16") for rest in engines)
    copy = 2 * parameter_count(SMALL).total
    cache = (CPU.sequence_tokens - 1) * 2 * SMALL.layers * SMALL.kv_heads * SMALL.head_dim * 2
    added = {phase: awake.by_phase[phase] - plain.by_phase[phase] for phase in ("score", "reward", "train")}
    assert set(added.values()) == {copy + cache}
    assert awake.by_phase["sync"] == awake.by_phase["generate"] == plain.by_phase["reward"] + copy + cache
    assert {phase: asleep.by_phase[phase] for phase in added} == {phase: plain.by_phase[phase] for phase in added}
    assert asleep.by_phase["sync"] == plain.by_phase["reward"] + copy
    assert asleep.by_phase["generate"] == awake.by_phase["generate"]
    assert "sync" not in plain.by_phase


def test_split_ranks_have_a_floor_of_their_own_kind_each():
    share, colocated = work(48, replicas=2), layout(data=2)
    split = Layout(devices_per_node=3, data=2, placement="split", generation_ranks=1)
    training, both = (memory_floor(SMALL, CPU, share, each, "bf16").by_phase for each in (split, colocated))
    assert training == {**both, "sync": both["reward"], "generate": both["reward"]}, "nothing of generation"
    position = 2 * SMALL.layers * SMALL.kv_heads * SMALL.head_dim * 2
    weights, tokens = 2 * parameter_count(SMALL).total, CPU.sequence_tokens - 1
    assert generating_floor(SMALL, CPU, share, split, "bf16") == weights + 48 * tokens * position
    engine = split.model_copy(update={"generation": "vllm"})
    assert generating_floor(SMALL, CPU, share, engine, "bf16") == weights + tokens * position
    assert memory_floor(SMALL, CPU, share, engine, "bf16").by_phase == training
    assert generating_floor(SMALL, CPU, share, colocated, "bf16") == 0


@given(size=shapes(), data=st.data(), rollouts=st.integers(1, 8))
def test_reads_add_up_step_by_step(size, data, rollouts):
    workload = data.draw(workloads(size.layers))
    count = parameter_count(size)
    weights = 2 * (size.layers * count.per_layer + count.final_norm + size.vocab * size.hidden)
    if size.experts is not None:
        left_out = Fraction(size.experts.count - size.experts.per_token, size.experts.count) ** rollouts
        weights -= 2 * (size.layers * count.experts_per_layer * left_out // 1)
    position = 2 * 2 * size.layers * size.kv_heads * size.head_dim
    held = range(workload.prompt_tokens, workload.sequence_tokens - 1)
    expected = sum(weights + rollouts * tokens * position for tokens in held)
    assert decode_bytes(size, workload, work(rollouts), layout(), "bf16") == expected


def test_fp32_reads_twice_as_much_tensor_parallelism_halves_it_and_zero_changes_nothing():
    size = find_size("1.3B")
    whole = decode_bytes(size, CHAT, work(), layout(), "bf16")
    assert decode_bytes(size, CHAT, work(), layout(), "fp32") == 2 * whole
    half = decode_bytes(size, CHAT, work(), layout(tensor=2), "bf16")
    assert 0 <= 2 * half - whole <= 255 * 4
    stages = (layout(data=4, zero_stage=stage) for stage in range(4))
    assert {decode_bytes(size, CHAT, work(), each, "bf16") for each in stages} == {whole}


@given(lengths=sample_lengths(12), rows=st.sampled_from([1, 3, 4, 12]))
def test_uneven_replicas_read_step_by_step_until_their_longest_sample_and_the_one_that_reads_most_counts(lengths, rows):
    share, count = work(12, 1, 12 // rows, lengths=lengths), parameter_count(SMALL)
    weights = 2 * (SMALL.layers * count.per_layer + count.final_norm + SMALL.vocab * SMALL.hidden)
    position = 2 * 2 * SMALL.layers * SMALL.kv_heads * SMALL.head_dim
    samples = list(zip(lengths.prompt, lengths.response, strict=True))
    expected = []
    for first in range(0, 12, rows):
        replica, read = samples[first : first + rows], 0
        for step in range(1, max(response for _, response in replica)):
            read += weights + position * sum(prompt + step - 1 for prompt, response in replica if response > step)
        expected.append(read)
    assert decode_bytes(SMALL, uneven(lengths), share, layout(data=12 // rows), "bf16") == max(expected)


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
    count, many = parameter_count(SMALL), work(2 * ENGINE_SAMPLES)
    once, twice = (decode_bytes(SMALL, CPU, many, layout(), "bf16", places) for places in (None, ENGINE_SAMPLES))
    weights = 2 * (SMALL.layers * count.per_layer + count.final_norm + SMALL.vocab * SMALL.hidden)
    assert twice - once == (CPU.new_tokens - 1) * weights


def test_a_step_reads_the_experts_that_it_touches_and_expert_parallel_ranks_share_them():
    size = find_size("Qwen3-30B-A3B")
    count, experts = parameter_count(size), 48 * 128 * 3 * 2048 * 768

    def weights(rollouts, **rest):
        cache = rollouts * 2 * 2 * 48 * 4 * 128 * sum(range(256, 256 + 255))
        return (decode_bytes(size, CHAT, work(rollouts), layout(**rest), "bf16") - cache) / (255 * 2)

    dense = count.total - count.embedding - experts
    assert weights(1) == pytest.approx(dense + experts * 8 / 128)
    assert weights(16) == pytest.approx(dense + experts * (1 - (120 / 128) ** 16))
    assert weights(4096) == dense + experts
    assert weights(16, data=8, expert=8) == pytest.approx(dense + experts / 8 * (1 - (120 / 128) ** 128))


def test_ranks_that_generate_alone_read_all_weights_for_their_share_of_the_samples():
    split = Layout(devices_per_node=4, tensor=2, data=1, placement="split", generation_ranks=2)
    share = decode_bytes(SMALL, CPU, work(8), layout(), "bf16")
    assert decode_bytes(SMALL, CPU, work(16), split, "bf16") == share
