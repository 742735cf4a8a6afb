"""Shapes, algorithms, lengths and engines of what is trained now: what is predicted moves as their physics says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.conduct.planning.preflight import preflight
from suite.planner.ask import question
from suite.planner.found import layouts
from suite.planner.iteration import predict
from suite.planner.lengths import Drawn, decoding, drawn, of_samples, passes
from suite.planner.memory import ENGINE_WORKSPACE
from suite.planner.parameters import load_parameters
from suite.planner.predict_manifest import predict_layout
from suite.planner.show import plan_lines
from suite.planner.space import USUAL, Manner, candidates
from suite.spec.algorithms import Algorithm
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.lengths import Lengths
from suite.spec.resolve import resolve_work, sample_lengths
from suite.theory.parameters import layer_matrix_elements, parameter_count
from tests.planner.test_predict_manifest import manifest

UNEVEN = Lengths(kind="lognormal", mean=400, sigma=0.6, cap=1024, at_cap=0.1)
VLLM = Manner("vllm", engine_sleep=True)


def ask(size="6.7B", backend="megatron", manner=USUAL, **changes):
    workload = find_workload("trlx-ds-chat").changed({"rollouts": 64, **changes})
    return question(find_size(size), workload, "H100-SXM-80GB", backend, manner=manner)


def table(asked, devices=8):
    found = layouts(asked, [devices])
    return found.space, found.told


MODERN = ["Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-4B", "Qwen3-30B-A3B", "1M-moe"]


@pytest.mark.parametrize("size", MODERN)
def test_a_block_has_the_elements_that_theory_counts(size):
    shape = find_size(size)
    jobs = table(ask(size))[0].work.jobs
    assert set(jobs.elements) == {layer_matrix_elements(shape)}
    experts = shape.experts
    mlp = 3 * shape.hidden * shape.ffn
    inactive = (experts.count - experts.per_token) * mlp if experts else 0
    assert set(jobs.active_elements) == {layer_matrix_elements(shape) - inactive}
    assert set(jobs.width) == {shape.heads * shape.head_dim}


def test_decoding_reads_the_experts_that_its_batch_meets_and_computes_those_that_a_token_meets():
    one, many = (table(ask("Qwen3-30B-A3B", rollouts=rollouts))[0].work.jobs for rollouts in (8, 64))
    alone = one.expert_parallel == 1
    few, all_of_them = (jobs.read_elements(np.full(len(jobs), rows)) for jobs, rows in ((one, 1.0), (many, 4096.0)))
    assert few[alone] == pytest.approx(one.active_elements[alone])
    assert all_of_them == pytest.approx(many.local_elements)
    assert (many.local_elements <= many.elements).all() and (many.local_elements < many.elements).any()


def test_a_mixtures_tensor_degree_is_searched_where_the_trainer_divides_experts_too():
    degrees = {name: set(table(ask("Qwen3-30B-A3B", name))[0].choices["tensor"]) for name in ("megatron", "nemo-rl")}
    assert degrees["megatron"] == {1.0} and {1.0, 2.0, 4.0} <= degrees["nemo-rl"]


@pytest.mark.parametrize("backend", ["deepspeed", "megatron"])
def test_without_a_reference_there_is_no_such_phase_and_no_such_memory(backend):
    _, ppo = table(ask(backend=backend))
    _, with_kl = table(ask(backend=backend, algorithm="grpo:kl_coefficient=0.01"))
    _, without = table(ask(backend=backend, algorithm="grpo"))
    assert ppo.phases["reference"].all() and with_kl.phases["reference"].all() and not without.phases["reference"].any()
    assert not without.memory.parts["reference"].any() and with_kl.memory.parts["reference"].any()
    assert (without.seconds < with_kl.seconds).all()


DRAWN = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 300)), min_size=16, max_size=16)


@settings(max_examples=30)
@given(DRAWN, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.booleans())
def test_passes_hold_the_tokens_of_their_samples_and_the_padding_of_their_micro_batches(each, data, micro, in_step):
    lengths = Drawn(*(np.array(column, dtype=float) for column in zip(*each, strict=True)))
    replica = 16 // data
    columns = {"devices": [8.0], "rollouts": [replica], "micro_batch": [micro], "zero_stage": [3.0 if in_step else 1.0]}
    columns = {name: np.array(column, dtype=float) for name, column in columns.items()}
    whole = (lengths.prompts + lengths.responses).reshape(data, replica // micro, micro)
    mean, largest = passes({8: lengths}, columns, packed=False, balanced=False)
    padded = whole.max(-1)
    slowest = padded.max(0).mean() if in_step else padded.mean(1).max()
    assert mean.tokens[0] == pytest.approx(slowest)
    assert largest.tokens[0] == padded.max()
    packed, _ = passes({8: lengths}, columns, packed=True, balanced=True)
    assert packed.tokens[0] == pytest.approx(whole.mean())
    assert packed.attended[0] == pytest.approx((whole**2).sum() / whole.sum())
    assert packed.tokens[0] <= mean.tokens[0] * (1 + 1e-12)
    assert 0 < mean.head_share[0] <= 1 and 0 < packed.head_share[0] < 1


@settings(max_examples=30)
@given(DRAWN)
def test_an_engine_steps_as_often_as_the_samples_need(each):
    lengths = Drawn(*(np.array(column, dtype=float) for column in zip(*each, strict=True)))
    found = decoding({8: lengths}, {"devices": np.array([8.0]), "rollouts": np.array([16.0])})
    assert found.new[0] == max(r for _, r in each) and found.prompt[0] == max(p for p, _ in each)
    assert found.steps[0] == sum(r - 1 for _, r in each)
    assert found.read[0] == sum(p + i for p, r in each for i in range(r - 1))


@pytest.mark.parametrize("manner", [Manner(), Manner(packing=True), Manner(balance=True), VLLM])
def test_a_distribution_of_one_length_is_that_length(manner):
    space, even = table(ask(manner=manner, new_tokens=256))
    other, fixed = table(ask(manner=manner, lengths="fixed:256"))
    for one, two in ((even.phases, fixed.phases), (even.memory.parts, fixed.memory.parts)):
        assert all(two[part] == pytest.approx(one[part]) for part in one)
    assert other.sample_tokens == pytest.approx(space.sample_tokens)


def test_an_engine_brings_a_copy_of_the_weights_and_a_phase_and_takes_what_published_ones_do():
    (space, own), (_, engine) = (table(ask(manner=manner)) for manner in (Manner(), Manner("vllm")))
    _, asleep = table(ask(manner=VLLM))
    weights = 2 * parameter_count(find_size("6.7B")).total + ENGINE_WORKSPACE
    alone = space.choices["pipeline"] == 1
    assert (engine.phases["sync"] > 0).all() and not own.phases["sync"].any()
    assert len(engine.seconds) == alone.sum(), "vLLM holds whole layers on every rank"
    assert engine.memory.parts["generation engine"].max() == pytest.approx(weights, rel=0.01)
    known, steps = load_parameters().values, ask().workload.new_tokens - 1
    assert (engine.phases["sync"] >= known["wake_fixed"]).all()
    assert (engine.phases["generate"] >= steps * (known["engine_step"] + 32 * known["engine_layer"])).all()
    assert engine.phases["generate"].min() < 3 * own.phases["generate"].min()
    assert (asleep.memory.total <= engine.memory.total).all() and (asleep.memory.total < engine.memory.total).any()


def test_a_manifests_own_lengths_are_what_is_predicted():
    size, layout = find_size("6.7B"), Layout(devices_per_node=8, data=8, distributed_optimizer=True)
    workload = ask(lengths=UNEVEN).workload
    whole = []
    for seed in (1, 2):
        work = resolve_work(size, workload, layout, seed)
        found = predict_layout(size, workload, work, layout, "megatron", "H100-SXM-80GB")
        own = of_samples(work.lengths).mean
        assert found["tokens_per_second"] == pytest.approx(found["samples_per_second"] * own)
        whole.append(found["phases"])
    assert whole[0] != whole[1]


def test_of_split_placement_nothing_is_predicted_and_preflight_says_so():
    size, workload = find_size("1.3B"), find_workload("trlx-ds-chat")
    layout = Layout(devices_per_node=8, data=4, placement="split", generation_ranks=4)
    work = resolve_work(size, workload, layout)
    assert predict_layout(size, workload, work, layout, "megatron", "H100-SXM-80GB") is None
    (row,) = preflight([manifest("1.3B", layout, "megatron")], "H100-SXM-80GB").rows
    assert row.expected is None and row.refused is None
    assert row.unchecked == "runs with --placement split: which side waits for the other is not predicted"


def test_a_large_draw_is_looked_at_in_part_and_has_the_distributions_mean():
    workload = ask(lengths=UNEVEN, rollouts=128).workload
    part = drawn(workload, 2_000_000)
    assert len(part.prompts) <= 32768
    whole = of_samples(sample_lengths(workload, 65536, 1234))
    assert part.mean == pytest.approx(whole.mean, rel=0.001)


def test_a_plan_says_what_it_assumes_of_algorithm_and_lengths():
    asked = ask(algorithm="grpo:clip_high=0.28", lengths=UNEVEN, manner=Manner("vllm", True, True, True))
    text = "\n".join(plan_lines(asked.plan([8], most=2)))
    for words in (
        "512 on 8) in groups of 8",
        "no reference, no critic",
        "lengths as drawn for seed 1234",
        "no published iteration of megatron on hopper devices is in the fit",
    ):
        assert words in text, words
    uneven = ask(algorithm=Algorithm(name="grpo"), group=7).plan([8])
    assert not uneven.options and any("do not divide into groups of 7" in note for note in uneven.notes)


def test_long_samples_are_divided_and_stages_interleaved_where_a_trainer_does_so():
    asked = ask("Llama-3.1-8B", "nemo-rl", new_tokens=16128)
    space = candidates(replace(asked, manner=USUAL), [32])
    told = predict(space.work, space.gen, space.pairs, asked.parameters.values)
    context, chunks = space.choices["context"], space.choices["chunks"]
    assert set(context) == {1, 2, 4} and set(chunks) == {1, 2, 4}
    assert ((told.training["context parallel"] > 0) == (context > 1)).all()
    row = int(np.flatnonzero((context == 2) & (chunks == 2))[0])
    assert space.label(row).endswith("cp2 vp2") and space.layout(row, 8).ranks == 32
    assert set(table(ask("Llama-3.1-8B", new_tokens=16128))[0].choices["context"]) == {1}


def test_fp8_is_faster_where_the_device_has_it_and_refused_where_not():
    def asked(device, fp8):
        return question(find_size("Qwen3-4B"), find_workload("grpo"), device, "nemo-rl", fp8=fp8)

    usual, fp8 = (table(asked("H100", flag))[1] for flag in (False, True))
    assert (fp8.phases["generate"] < usual.phases["generate"]).all()
    assert (fp8.phases["train"] < 1.000001 * usual.phases["train"]).all() and fp8.seconds.sum() < usual.seconds.sum()
    assert any("no option for fp8" in note for note in asked("H100", True).plan([8]).notes)
    with pytest.raises(UsageError, match="no fp8 peak"):
        asked("A100-80GB", True)
