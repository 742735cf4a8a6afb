"""FLOPs of an iteration against published formulas and a counted model; adapters and a critic, counted by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths, Work
from suite.spec.resolve import sample_lengths as sample_lengths_of
from suite.theory.adapters import adapter_elements, critic_parameters
from suite.theory.bandwidth import decode_bytes
from suite.theory.flops import iteration_flops
from suite.theory.memory import memory_floor
from suite.theory.parameters import layer_matrix_elements, parameter_count
from tests.theory.shapes import even, learning_by, parameters_of, sample_lengths, shapes, uneven, workloads


def value_head(hidden):
    return 2 * (2 * hidden**2 + 2 * hidden)


@given(samples=st.integers(1, 64), prompt=st.integers(1, 512), response=st.integers(1, 512))
def test_training_with_recompute_is_the_megatron_formula_with_logits_on_the_response(samples, prompt, response):
    """96 B s l h^2 (1 + s / 6h) of arXiv 2104.04473, its logit term on the response positions, plus the value head."""
    size = find_size("125M")
    flops = iteration_flops(size, even(prompt, response), samples, recompute=True)
    tokens, layers, h = prompt + response, size.layers, size.hidden
    blocks = 96 * samples * tokens * layers * h * h + 16 * samples * tokens * tokens * layers * h
    logits = 6 * samples * response * h * size.vocab
    assert flops.train + flops.recompute == blocks + logits + 3 * samples * response * value_head(h)


@given(size=shapes(), data=st.data())
def test_prefill_and_decode_under_the_causal_convention_are_one_causal_pass_less_its_last_token(size, data):
    """Decoding token by token does the work of a causal forward pass over all tokens that are fed."""
    work = data.draw(workloads(size.layers))
    causal = iteration_flops(size, work, 1, attention="causal")
    fed = work.sequence_tokens - 1
    one_pass = iteration_flops(size, even(fed, 1), 1, attention="causal")
    logits = (work.new_tokens - 1) * 2 * size.hidden * size.vocab
    assert causal.generate == one_pass.generate_prefill + logits


@given(size=shapes(), data=st.data(), samples=st.integers(1, 100))
def test_model_flops_are_those_of_phases_and_samples_recompute_adds_and_a_causal_mask_saves(size, data, samples):
    work = data.draw(workloads(size.layers))
    plain, again = iteration_flops(size, work, samples), iteration_flops(size, work, samples, recompute=True)
    one, causal = iteration_flops(size, work, 1), iteration_flops(size, work, samples, attention="causal")
    assert plain.model == samples * one.model
    assert causal.model <= plain.model and causal.generate_decode == plain.generate_decode
    assert causal.convention != plain.convention
    assert plain.model == plain.generate_prefill + plain.generate_decode + plain.score + plain.reference + plain.train
    assert plain.hardware == plain.model == again.model
    assert again.hardware - again.model == again.recompute >= 0


@given(size=shapes(), data=st.data())
def test_training_everything_costs_three_forward_passes_and_each_frozen_layer_saves_its_backward_pass(size, data):
    work = data.draw(workloads(size.layers)).model_copy(update={"ppo_epochs": 1, "reference": "full"})
    parts = [work.model_copy(update={"trainable_layers": layers}) for layers in range(size.layers + 1)]
    trains = [iteration_flops(size, part, 1).train for part in parts]
    forward = iteration_flops(size, work, 1).score
    steps = {later - earlier for earlier, later in pairwise(trains)}
    assert len(steps) == 1
    assert trains[0] > forward
    everything = iteration_flops(size, work.model_copy(update={"trainable_layers": None}), 1).train
    head = work.new_tokens * 2 * size.hidden * size.vocab
    assert everything - trains[-1] == head
    assert everything == 3 * forward


def test_more_trainable_layers_than_layers_are_refused():
    work = find_workload("smoke").model_copy(update={"trainable_layers": 3})
    with pytest.raises(ValueError, match="1M has 2"):
        iteration_flops(find_size("1M"), work, 1)


@given(size=shapes(), lengths=sample_lengths(), attention=st.sampled_from(["full", "causal"]), recompute=st.booleans())
def test_uneven_samples_are_the_sum_of_each_alone(size, lengths, attention, recompute):
    workload = uneven(lengths)
    together = iteration_flops(size, workload, len(lengths.prompt), recompute, attention, lengths)
    samples = zip(lengths.prompt, lengths.response, strict=True)
    alone = [iteration_flops(size, even(*sample), 1, recompute, attention) for sample in samples]
    for phase in ("generate_prefill", "generate_decode", "score", "reference", "train", "recompute", "hardware"):
        assert getattr(together, phase) == sum(getattr(each, phase) for each in alone), phase


def test_lengths_that_are_not_given_are_those_that_seed_0_draws():
    size = find_size("1M-llama")
    workload = find_workload("cpu").changed({"lengths": "lognormal:mean=64,sigma=0.6,cap=256"})
    drawn = sample_lengths_of(workload, 64, 0)
    assert iteration_flops(size, workload, 64) == iteration_flops(size, workload, 64, lengths=drawn)
    longest = workload.changed({"new_tokens": 256})
    assert iteration_flops(size, workload, 64).model < 0.5 * iteration_flops(size, longest, 64).model
    with pytest.raises(ValueError, match="lengths of 64 samples, but there are 32"):
        iteration_flops(size, workload, 32, lengths=drawn)


def test_samples_of_a_prompt_that_are_generated_together_compute_it_once():
    size, work = find_size("1M-llama"), find_workload("smoke").model_copy(update={"group": 4})
    prefills = [iteration_flops(size, work, 8, sharing=sharing).generate_prefill for sharing in (None, 8, 2)]
    each, shared, apart = (prefill - 8 * 2 * size.hidden * size.vocab for prefill in prefills)
    assert each == 4 * shared == 2 * apart
    lengths = SampleLengths(prompt=(work.prompt_tokens,) * 8, response=(work.new_tokens,) * 8)
    assert iteration_flops(size, work, 8, lengths=lengths, sharing=8).generate_prefill == prefills[1]


@given(size=shapes(), data=st.data())
def test_without_values_and_reference_their_work_is_not_counted(size, data):
    ppo = data.draw(workloads(size.layers))
    full, less = iteration_flops(size, ppo, 3), iteration_flops(size, learning_by("grpo", ppo), 3)
    values = 3 * ppo.new_tokens * value_head(size.hidden)
    assert full.score - less.score == values
    assert full.train - less.train == 3 * ppo.ppo_epochs * values
    assert less.reference == 0 and less.generate == full.generate
    unscored = iteration_flops(size, ppo, 3, unscored=True)
    assert unscored.score == values and unscored.model == full.model - full.score + values


CHAT = find_workload("ds-chat-step3")
SIZE = find_size("13B")
WORK = Work(global_rollouts=16, replica_rollouts=16, replica_batch=16, micro_batch=16)
ONE = Layout(devices_per_node=1, data=1)


def changed(**changes):
    return CHAT.changed(changes)


def test_adapters_of_a_block_are_six_as_in_deepspeed_chat():
    hidden, ffn = SIZE.hidden, SIZE.ffn
    one_by_one = [(hidden, hidden)] * 4 + [(hidden, ffn), (ffn, hidden)]
    by_hand = sum(128 * (inside + outside) for inside, outside in one_by_one)
    assert adapter_elements(SIZE, changed(lora_rank=128)) == by_hand
    assert adapter_elements(SIZE, CHAT) == 0


def test_the_critic_has_opt_350ms_blocks_on_the_policys_vocabulary():
    blocks = 24 * (12 * 1024**2 + 13 * 1024)
    assert critic_parameters(SIZE, CHAT.critic) == blocks + (50257 + 2048) * 1024 + 2 * 1024 + 1024


def test_lora_trains_everything_but_the_blocks_matrices():
    total, trained = parameters_of(SIZE, changed(lora_rank=128, critic=None))
    adapters = SIZE.layers * adapter_elements(SIZE, changed(lora_rank=128))
    matrices = SIZE.layers * layer_matrix_elements(SIZE)
    assert total == parameter_count(SIZE).with_value_head + adapters
    assert trained == total - matrices < 0.06 * total


@given(rank=st.integers(1, 512), name=st.sampled_from(["1.3B", "13B", "66B"]))
def test_adapters_weigh_less_than_training_everything(rank, name):
    size = find_size(name)
    full, lora = (memory_floor(size, changed(lora_rank=each), WORK, ONE, "fp16").bytes for each in (None, rank))
    assert lora < full
    reads = [decode_bytes(size, changed(lora_rank=each), WORK, ONE, "fp16") for each in (None, rank)]
    assert reads[1] - reads[0] == 255 * 2 * size.layers * adapter_elements(size, changed(lora_rank=rank))


def test_the_memory_floor_holds_the_critic_with_its_optimizer():
    alone, both = (memory_floor(SIZE, changed(critic=each), WORK, ONE, "fp16").parts for each in (None, CHAT.critic))
    difference = critic_parameters(SIZE, CHAT.critic) - (2 * SIZE.hidden**2 + 4 * SIZE.hidden + 1)
    assert both["weights"] - alone["weights"] == 2 * difference
    assert both["optimizer"] - alone["optimizer"] == 12 * difference
