"""A backend whose reference waits in host memory: what moving it costs, in time and in memory."""

import pytest

from suite.planner.ask import question
from suite.planner.held import trained_weights
from suite.planner.plan import Plan
from suite.planner.training import SWAP_BYTES
from suite.spec.catalogue import find_size, find_workload
from suite.theory.parameters import parameter_count

WORK = find_workload("trlx-ds-chat")


def plan(backend: str, size: str = "6.7B", **work: object) -> Plan:
    asked = question(find_size(size), WORK.model_copy(update=work), "A100-SXM-80GB", backend)
    return asked.plan([8], most=64)


def test_the_reference_of_trlx_nemo_takes_longer_than_scoring_by_the_swap_and_its_casts() -> None:
    """Tensor parallelism divides the swap: the policy's 2 bytes out, the reference's 4 in, and 2 back."""
    options = plan("trlx-nemo").options
    whole = SWAP_BYTES * parameter_count(find_size("6.7B")).total / 24e9
    for one in options:
        more = one.phases["reference"] - one.phases["score"]
        assert whole < more * one.layout.tensor < 2 * whole, "casts are a few passes over the weights"
    assert len({one.layout.tensor for one in options}) > 2


def test_only_what_trains_is_swapped() -> None:
    size = find_size("6.7B")
    half = WORK.model_copy(update={"trainable_layers": 16})
    assert trained_weights(size, WORK) == parameter_count(size).total
    assert trained_weights(size, half) == 16 * parameter_count(size).per_layer + parameter_count(size).final_norm


@pytest.mark.parametrize("backend", ["megatron", "deepspeed"])
def test_a_resident_reference_takes_as_long_as_scoring_and_swaps_nothing(backend: str) -> None:
    for option in plan(backend).options:
        assert option.phases["reference"] == pytest.approx(option.phases["score"])


def test_the_fp32_reference_counts_in_the_memory_of_its_phase() -> None:
    """With everything recomputed its pass is the fullest: 4 bytes a parameter, 2 in other phases."""
    option = next(one for one in plan("trlx-nemo").options if one.label == "dp8 dist-opt recompute")
    assert option.memory["reference"] == pytest.approx(4 * parameter_count(find_size("6.7B")).total, rel=1e-9)


def test_host_memory_is_stated_for_a_replica() -> None:
    (note,) = [note for note in plan("trlx-nemo").notes if "host memory" in note]
    assert "40 GB for each data parallel replica" in note, "6 bytes for each of 6.66e9 parameters; eight replicas: 320"
    assert not [note for note in plan("megatron").notes if "host memory" in note]
