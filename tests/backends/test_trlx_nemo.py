"""What the driver of trlx-nemo chooses, without NeMo."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from suite.backends.trlx_nemo import TrlxNemo, shipped_tensor, trained_positions
from suite.spec.catalogue import find_preset, find_size, find_workload, sizes
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors, resolve_work

DRIVER = TrlxNemo()
WORKLOAD = find_workload("trlx-ds-chat")
CUDA = Measure(device="cuda", precision="bf16")


@pytest.mark.parametrize("preset", ["trlx-ds-chat", "ladder"])
def test_every_size_of_a_preset_is_laid_out_as_trlx_ships_it(preset: str, snapshot: SnapshotAssertion) -> None:
    rows = []
    for point in find_preset(preset).points:
        size, workload = find_size(point.size), find_preset(preset).work_of(point)
        layout = DRIVER.layout(size, workload, LayoutRequest(nodes=point.nodes, devices_per_node=8))
        assert layout_errors(size, workload, layout) + DRIVER.errors(size, workload, layout, CUDA) == []
        work = resolve_work(size, workload, layout)
        rows.append(
            f"{size.name}: {layout.nodes} nodes, {layout.label()}; {work.global_rollouts} rollouts "
            f"({work.replica_rollouts} a replica), batch {work.replica_batch}, micro batch {work.micro_batch}, "
            f"{workload.optimizer_steps} steps, trains {workload.trainable_layers or 'all'}"
        )
    assert rows == snapshot


@given(
    name=st.sampled_from(sorted(sizes("true") | sizes("trlx"))),
    nodes=st.sampled_from([1, 2, 4]),
    tensor=st.none() | st.integers(1, 16),
    sequence=st.none() | st.booleans(),
)
@settings(max_examples=30)
def test_a_layout_is_the_world_or_a_reason(name: str, nodes: int, tensor: int | None, sequence: bool | None) -> None:
    request = LayoutRequest(nodes=nodes, devices_per_node=8, tensor=tensor, sequence_parallel=sequence)
    try:
        layout = DRIVER.layout(find_size(name), WORKLOAD, request)
    except ValueError as error:
        assert "do not divide" in str(error) or "tensor parallel of at least 2" in str(error)
        return
    assert layout.tensor * layout.data == layout.ranks == nodes * 8
    assert layout.tensor == (tensor or shipped_tensor(find_size(name)))
    if layout.sequence_parallel and not DRIVER.errors(find_size(name), WORKLOAD, layout, CUDA):
        assert trained_positions(WORKLOAD) % layout.tensor == 0
