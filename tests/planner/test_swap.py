"""A backend whose reference waits in host memory: what moving it costs, in time and in memory."""

from __future__ import annotations

import pytest

from suite.planner.ask import question
from suite.planner.formulas.offload import HOST_LINK_BYTES_PER_SECOND
from suite.planner.plan import Plan
from suite.planner.space import trained_weights
from suite.spec.catalogue import find_size, find_workload
from suite.theory.parameters import parameter_count

WORK = find_workload("trlx-ds-chat")


def plan(backend: str, size: str = "6.7B", **work: object) -> Plan:
    asked = question(find_size(size), WORK.model_copy(update=work), "A100-SXM-80GB", backend)
    return asked.plan([8], most=64)


def test_the_reference_of_trlx_nemo_takes_longer_than_scoring_by_the_swap_and_its_casts() -> None:
    options = plan("trlx-nemo").options
    casts = [one.phases["reference"] - one.phases["score"] - one.phases["swap"] for one in options]
    assert all(one.phases["swap"] > 0 for one in options) and min(casts) > 0.05
    # micro batches grow with the tensor degree as the weights of a rank shrink, and all options have micro batch 4
    assert {one.micro_batch for one in options} == {4} and max(casts) == pytest.approx(min(casts))


def test_tensor_parallelism_divides_the_swap() -> None:
    swaps = {option.layout.tensor: option.phases["swap"] for option in plan("trlx-nemo").options}
    assert len(swaps) > 2
    assert all(swap * tensor == pytest.approx(swaps[1]) for tensor, swap in swaps.items())
    eight_bytes = 8 * parameter_count(find_size("6.7B")).total  # the policy's 2 out, the reference's 4 in, and 2 back
    assert swaps[1] == pytest.approx(eight_bytes / HOST_LINK_BYTES_PER_SECOND, rel=0.02)


def test_only_what_trains_is_swapped() -> None:
    size = find_size("6.7B")
    half = WORK.model_copy(update={"trainable_layers": 16})
    assert trained_weights(size, WORK) == parameter_count(size).total
    assert trained_weights(size, half) == 16 * parameter_count(size).per_layer + parameter_count(size).final_norm


@pytest.mark.parametrize("backend", ["megatron", "deepspeed"])
def test_a_resident_reference_takes_as_long_as_scoring_and_swaps_nothing(backend: str) -> None:
    for option in plan(backend).options:
        assert "swap" not in option.phases
        assert option.phases["reference"] == option.phases["score"]


def test_the_fp32_reference_counts_in_the_memory_of_its_phase() -> None:
    """With everything recomputed its pass is the fullest: 4 bytes a parameter, 2 in other phases."""
    option = next(one for one in plan("trlx-nemo").options if one.label == "dp8 dist-opt recompute")
    assert option.memory["reference"] == pytest.approx(4 * parameter_count(find_size("6.7B")).total, rel=1e-9)


def test_host_memory_is_stated_for_a_replica() -> None:
    (note,) = [note for note in plan("trlx-nemo").notes if "host memory" in note]
    assert "40 GB for each data parallel replica" in note, "6 bytes for each of 6.66e9 parameters; eight replicas: 320"
    assert not [note for note in plan("megatron").notes if "host memory" in note]
