"""Adapters and a separate critic: counted by hand, and neutral where there are none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.workload import Workload
from suite.theory.adapters import adapter_elements, critic_parameters
from suite.theory.bandwidth import decode_bytes
from suite.theory.memory import memory_floor
from suite.theory.parameters import layer_matrix_elements, parameter_count
from tests.theory.shapes import parameters_of

CHAT = find_workload("ds-chat-step3")
SIZE = find_size("13B")
WORK = Work(global_rollouts=16, replica_rollouts=16, replica_batch=16, micro_batch=16)
ONE = Layout(devices_per_node=1, data=1)


def changed(**changes: Any) -> Workload:
    return Workload.model_validate({**CHAT.model_dump(), **changes})


def test_adapters_of_a_block_are_six_as_in_deepspeed_chat() -> None:
    hidden, ffn = SIZE.hidden, SIZE.ffn
    one_by_one = [(hidden, hidden)] * 4 + [(hidden, ffn), (ffn, hidden)]
    by_hand = sum(128 * (inside + outside) for inside, outside in one_by_one)
    assert adapter_elements(SIZE, changed(lora_rank=128)) == by_hand
    assert adapter_elements(SIZE, CHAT) == 0


def test_the_critic_has_opt_350ms_blocks_on_the_policys_vocabulary() -> None:
    assert CHAT.critic is not None
    blocks = 24 * (12 * 1024**2 + 13 * 1024)
    assert critic_parameters(SIZE, CHAT.critic) == blocks + (50257 + 2048) * 1024 + 2 * 1024 + 1024


def test_lora_trains_everything_but_the_blocks_matrices() -> None:
    total, trained = parameters_of(SIZE, changed(lora_rank=128, critic=None))
    adapters = SIZE.layers * adapter_elements(SIZE, changed(lora_rank=128))
    matrices = SIZE.layers * layer_matrix_elements(SIZE)
    assert total == parameter_count(SIZE).with_value_head + adapters
    assert trained == total - matrices < 0.06 * total


@given(rank=st.integers(1, 512), name=st.sampled_from(["1.3B", "13B", "66B"]))
def test_adapters_weigh_less_than_training_everything(rank: int, name: str) -> None:
    size = find_size(name)
    full, lora = (memory_floor(size, changed(lora_rank=each), WORK, ONE, "fp16").bytes for each in (None, rank))
    assert lora < full
    reads = [decode_bytes(size, changed(lora_rank=each), WORK, ONE, "fp16") for each in (None, rank)]
    assert reads[1] - reads[0] == 255 * 2 * size.layers * adapter_elements(size, changed(lora_rank=rank))


def test_the_memory_floor_holds_the_critic_with_its_optimizer() -> None:
    assert CHAT.critic is not None
    alone, both = (memory_floor(SIZE, changed(critic=each), WORK, ONE, "fp16").parts for each in (None, CHAT.critic))
    difference = critic_parameters(SIZE, CHAT.critic) - (2 * SIZE.hidden**2 + 4 * SIZE.hidden + 1)
    assert both["weights"] - alone["weights"] == 2 * difference
    assert both["optimizer"] - alone["optimizer"] == 12 * difference


@pytest.mark.parametrize(
    "changes",
    [{"lora_rank": 8, "trainable_layers": 2}, {"lora_rank": 0}, {"critic": {**CHAT.critic.model_dump(), "heads": 3}}],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        changed(**changes)


def test_workloads_without_either_are_written_as_they_always_were() -> None:
    assert not {"lora_rank", "critic"} & set(find_workload("trlx-ds-chat").model_dump())
    assert {"critic"} == {"lora_rank", "critic"} & set(CHAT.model_dump())
