"""A layout multiplies to its world, refuses what cannot be, and is called by what is switched on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.spec.layout import Layout

degrees = st.sampled_from([1, 2, 4, 8])


@given(tensor=degrees, pipeline=degrees, data=degrees, nodes=degrees)
def test_a_layout_stands_only_if_its_degrees_multiply_to_the_ranks(tensor, pipeline, data, nodes):
    def make(devices):
        return Layout(nodes=nodes, devices_per_node=devices, tensor=tensor, pipeline=pipeline, data=data)

    world = tensor * pipeline * data
    if world % nodes == 0:
        assert make(world // nodes).ranks == world
    with pytest.raises(ValidationError, match="but there are"):
        make(world + 1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"sequence_parallel": True}, "tensor parallel of at least 2"),
        ({"offload_parameters": True, "zero_stage": 2}, "stage 3 only"),
        ({"offload_optimizer": True}, "stages 1 to 3 only"),
        ({"zero_stage": 4}, "less than or equal to 3"),
        ({"engine": "ddp", "zero_stage": 2}, "DDP shards nothing: ZeRO stage 2 is DeepSpeed's"),
        ({"engine": "fsdp2"}, "FSDP2 shards everything, as ZeRO stage 3 does"),
        ({"engine": "fsdp2", "zero_stage": 3, "gather_for_generation": True}, "gathers nothing once"),
        ({"tensor": 0}, "greater than 0"),
        ({"tensor_parallel": 2}, "Extra inputs"),
    ],
)
def test_what_cannot_be_is_refused(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        Layout(devices_per_node=2, data=2, **fields)


def test_the_label_names_what_is_on_and_the_strategy_leaves_data_parallel_out():
    layout = Layout(devices_per_node=8, tensor=2, data=4, sequence_parallel=True, distributed_optimizer=True)
    assert layout.label() == "tp2 dp4 sp dist-opt"
    assert layout.strategy() == "tp2 sp dist-opt"
    assert Layout(devices_per_node=1, data=1).label() == Layout(devices_per_node=2, data=2).strategy() == "plain"
