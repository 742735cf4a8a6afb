"""The memory floor: published tables of states, its own arithmetic, and the directions it may move in."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.theory.bandwidth import decode_bytes
from suite.theory.memory import memory_floor
from suite.theory.parameters import parameter_count, trainable_count
from suite.theory.shards import Stage, stages, states
from tests.theory.shapes import layout, shapes, work, workloads

PRECISIONS = ("fp32", "bf16", "fp16")
DEGREES = (1, 2, 4, 8)

#: ZeRO (arXiv 1910.02054), first and last model of table 1: GB (1e9) of model states per device, by model and stage
#: (down) and data parallel degree (across).
ZERO_TABLE_1 = """\
parameters,1,4,16,64,256,1024
7.5e9/1,120,52.5,35.6,31.4,30.4,30.1
7.5e9/2,120,41.3,21.6,16.6,15.4,15.1
7.5e9/3,120,30,7.5,1.88,0.47,0.12
1e12/1,16000,7000,4750,4187,4046,4011
1e12/2,16000,5500,2875,2218,2054,2013
1e12/3,16000,4000,1000,250,62.5,15.6
"""


def zero_cells():
    for row in csv.DictReader(io.StringIO(ZERO_TABLE_1)):
        parameters, stage = row.pop("parameters").split("/")
        for degree, gigabytes in row.items():
            yield int(float(parameters)), int(stage), int(degree), float(gigabytes)


@pytest.mark.parametrize(("parameters", "stage", "degree", "gigabytes"), list(zero_cells()))
def test_model_states_are_those_of_the_zero_paper(parameters, stage, degree, gigabytes):
    whole = Stage(first=True, last=True, layers=1, trainable_layers=1, trainable=parameters, frozen=0, reference=0)
    held = states(whole, layout(data=degree, zero_stage=stage), "fp16")
    total = held.weights + held.gradients + held.optimizer
    assert total / 1e9 == pytest.approx(gigabytes, rel=0.005, abs=0.005)


def test_mixed_precision_and_fp32_both_hold_sixteen_bytes_per_trained_parameter():
    whole = Stage(first=True, last=True, layers=1, trainable_layers=1, trainable=1000, frozen=0, reference=0)
    for precision in PRECISIONS:
        held = states(whole, layout(), precision)
        assert held.weights + held.gradients + held.optimizer == 16_000


@given(size=shapes(), data=st.data())
def test_one_stage_holds_every_parameter_of_policy_and_full_reference(size, data):
    workload = data.draw(workloads(size.layers)).model_copy(update={"reference": "full"})
    (whole,) = stages(size, workload, layout())
    count = parameter_count(size)
    assert whole.trainable + whole.frozen == count.with_value_head
    assert whole.trainable == trainable_count(size, workload.trainable_layers)
    assert whole.reference == count.total


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


def test_a_hydra_reference_keeps_only_the_branch_and_the_final_norm():
    size = find_size("8M")
    workload = find_workload("cpu").model_copy(update={"trainable_layers": 3, "reference": "hydra"})
    (whole,) = stages(size, workload, layout())
    count = parameter_count(size)
    assert whole.reference == 3 * count.per_layer + count.final_norm


@given(size=shapes(), data=st.data(), micro=st.sampled_from([1, 4, 16]), precision=st.sampled_from(PRECISIONS))
def test_the_floor_is_the_largest_phase_and_the_sum_of_its_parts(size, data, micro, precision):
    floor = memory_floor(size, data.draw(workloads(size.layers)), work(16, micro), layout(), precision)
    assert floor.bytes == sum(floor.parts.values()) == max(floor.by_phase.values()) == floor.by_phase[floor.phase]
    assert list(floor.by_phase) == ["generate", "score", "reference", "reward", "train"]
    assert floor.by_phase["train"] >= floor.by_phase["score"] >= floor.by_phase["reward"]


def test_a_floor_worked_out_by_hand():
    """125M, bf16, everything trains, two micro batches of 4 sequences of 256 + 256 tokens on one device."""
    size, workload = find_size("125M"), find_workload("trlx-ds-chat")
    floor = memory_floor(size, workload, work(8, 4), layout(), "bf16")
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
    size, workload = find_size("6.7B"), find_workload("trlx-ds-chat")
    old, new = (
        memory_floor(size, workload, work(64, 4), layout(data=8, zero_stage=3), "bf16", each) for each in (1, 2)
    )
    assert (old.phase, new.phase) == ("train", "generate")
    assert new.parts["kv_cache"] == 64 * 511 * 2 * 32 * 4096 * 2
    assert new.by_phase["generate"] - old.by_phase["generate"] == 60 * 511 * 2 * 32 * 4096 * 2
    assert all(new.by_phase[phase] == old.by_phase[phase] for phase in new.by_phase if phase != "generate")


@given(size=shapes(), data=st.data())
def test_the_cache_of_the_floor_is_what_the_last_step_of_decoding_reads(size, data):
    """One token more is a step more: the weights once, and the cache as it stands before it."""
    workload = data.draw(workloads(size.layers))
    longer = workload.model_copy(update={"new_tokens": workload.new_tokens + 1})
    share = work(16, 4)
    floor = memory_floor(size, workload, share, layout(), "bf16")
    cache = floor.by_phase["generate"] - floor.by_phase["reward"]
    one, two, none = (
        decode_bytes(size, each, share.model_copy(update={"replica_rollouts": rollouts}), layout(), "bf16")
        for each, rollouts in ((workload, 16), (longer, 16), (longer, 0))
    )
    assert two - one == none // workload.new_tokens + cache


def test_with_one_micro_batch_gradients_and_logits_do_not_stand_side_by_side():
    size, workload = find_size("125M"), find_workload("trlx-ds-chat")
    one, two = (memory_floor(size, workload, work(8, micro), layout(), "bf16") for micro in (8, 4))
    assert "gradients" not in one.parts or "logits" not in one.parts
    assert {"gradients", "logits"} <= set(two.parts)


@given(size=shapes(), data=st.data(), precision=st.sampled_from(PRECISIONS), stage=st.integers(0, 3))
def test_more_tensor_or_data_parallel_never_raises_the_floor(size, data, precision, stage):
    workload = data.draw(workloads(size.layers))
    share = work(16, data.draw(st.sampled_from([1, 4, 16])))
    floors = [
        [
            memory_floor(size, workload, share, layout(tensor=tensor, data=degree, zero_stage=stage), precision).bytes
            for degree in DEGREES
        ]
        for tensor in DEGREES
    ]
    for row in (*floors, *zip(*floors, strict=True)):
        assert list(row) == sorted(row, reverse=True)


@given(size=shapes(), data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_each_zero_stage_lowers_the_floor_or_leaves_it(size, data, precision):
    workload = data.draw(workloads(size.layers))
    floors = [
        memory_floor(size, workload, work(), layout(data=4, zero_stage=stage), precision).bytes for stage in range(4)
    ]
    assert floors == sorted(floors, reverse=True)


@given(size=shapes(), data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_freezing_and_hydra_lower_the_floor(size, data, precision):
    whole = data.draw(workloads(size.layers)).model_copy(update={"trainable_layers": None, "reference": "full"})
    frozen = whole.model_copy(update={"trainable_layers": data.draw(st.integers(0, size.layers))})
    hydra = frozen.model_copy(update={"reference": "hydra"})
    floors = [memory_floor(size, workload, work(), layout(), precision).bytes for workload in (whole, frozen, hydra)]
    assert floors == sorted(floors, reverse=True)


@given(size=shapes(), data=st.data())
def test_the_distributed_optimizer_shards_the_optimizer_alone(size, data):
    workload = data.draw(workloads(size.layers))
    (whole,) = stages(size, workload, layout())
    plain, sharded = (states(whole, layout(data=4, distributed_optimizer=on), "bf16") for on in (False, True))
    assert (plain.weights, plain.gradients, plain.reference) == (sharded.weights, sharded.gradients, sharded.reference)
    assert sharded.optimizer == 12 * -(-whole.trainable // 4)


@given(size=shapes(), data=st.data(), precision=st.sampled_from(PRECISIONS))
def test_what_is_offloaded_is_not_on_the_device(size, data, precision):
    workload = data.draw(workloads(size.layers))
    (whole,) = stages(size, workload, layout())
    optimizer = states(whole, layout(data=2, zero_stage=3, offload_optimizer=True), precision)
    everything = states(whole, layout(data=2, zero_stage=3, offload_optimizer=True, offload_parameters=True), precision)
    assert optimizer.optimizer == optimizer.gradients == 0 < optimizer.weights
    assert everything.weights == everything.reference == everything.optimizer == everything.gradients == 0


def test_megatrons_offloaded_optimizer_leaves_the_gradients_on_the_device_and_old_bundles_did_not_count_them():
    size, workload = find_size("6.7B"), find_workload("trlx-ds-chat")
    held = layout(distributed_optimizer=True, offload_optimizer=True)
    old, new = (memory_floor(size, workload, work(8, 4), held, "bf16", rules) for rules in (1, 2))
    trained = trainable_count(size, None)
    assert new.by_phase["train"] - old.by_phase["train"] == new.parts["gradients"] == 2 * trained
    assert old.parts["optimizer"] == new.parts["optimizer"] == 0
    zero = memory_floor(size, workload, work(8, 4), layout(zero_stage=2, offload_optimizer=True), "bf16")
    assert "gradients" not in zero.parts or zero.parts["gradients"] == 0


def test_only_the_last_stage_of_a_pipeline_holds_logits_and_the_fullest_stage_counts():
    size, workload = find_size("6.7B"), find_workload("trlx-ds-chat")
    one = memory_floor(size, workload, work(), layout(), "bf16")
    four = memory_floor(size, workload, work(), layout(pipeline=4), "bf16")
    first, _, _, last = stages(size, workload, layout(pipeline=4))
    assert four.bytes > one.bytes / 4
    assert first.trainable > last.trainable
    assert "logits" in four.parts


def test_sequence_parallelism_shares_the_stored_inputs():
    size, workload = find_size("6.7B"), find_workload("trlx-ds-chat")
    plain = Layout(devices_per_node=4, tensor=4, data=1)
    shared = Layout(devices_per_node=4, tensor=4, data=1, sequence_parallel=True)
    inputs = [memory_floor(size, workload, work(), each, "bf16").parts["activations"] for each in (plain, shared)]
    assert inputs[0] == 4 * inputs[1]
