"""Step times move as physics says they must."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.fitting.check import fitted
from suite.fitting.fit import Rows
from suite.fitting.validate import model_seconds
from suite.planner.hardware import published_hardware
from suite.planner.jobs import Jobs
from suite.planner.memory import memory_parts
from suite.planner.parameters import load_parameters
from suite.planner.stacks import plain_framework, traits
from suite.planner.timing import step_parts, step_seconds
from tests.planner.rl_work import LAYOUT, LLAMA, STEP, WAYS

P = load_parameters()


PRETRAINING = {"sequence": 8192, "global_batch": 128, "micro_batch": 1, "devices": 8, "pipeline": 1, "recompute": 0}


def job(**changes):
    hardware = published_hardware(changes.pop("gpu", "H100-SXM"), 80)
    columns = {**hardware.columns(), **traits("NeMo Megatron").columns()}
    return {**LLAMA, **columns, **LAYOUT, **STEP, **WAYS, **PRETRAINING, **changes}


@settings(max_examples=30)
@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 8, 64]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from([0, 1, 2]),
)
def test_no_step_is_faster_than_the_peak_allows(tensor, pipeline, data, recompute, precision):
    row = job(
        tensor=tensor,
        pipeline=pipeline,
        devices=tensor * pipeline * data,
        global_batch=64 * data,
        recompute=recompute,
        precision=precision,
    )
    rows = Rows(Jobs.of([row]), np.ones(1), ({},), np.ones(1))
    fastest = model_seconds(rows)[0] / {0: 1, 1: 2, 2: 4}[precision]
    assert float(step_seconds(rows.jobs, P.vector())[0]) > fastest / 1.05


def parts(**changes):
    return {name: float(value[0]) for name, value in step_parts(Jobs.of([job(**changes)]), P.values).items()}


def test_a_tensor_parallel_group_that_spans_nodes_goes_at_the_pace_of_their_network():
    layout = {"devices": 16, "tensor": 16, "gpu": "A100-SXM"}
    inside, across = parts(**layout, node_devices=16), parts(**layout, node_devices=8)
    assert across["tensor parallel"] == pytest.approx(1.5 * inside["tensor parallel"])
    alone = parts(devices=16, tensor=8, context=2, node_devices=8)["context parallel"]
    assert alone == pytest.approx(9 * parts(devices=16, tensor=8, context=2, node_devices=16)["context parallel"])


def test_sharding_divides_states_and_leaves_activations():
    whole = memory_parts(Jobs.of([job(zero_stage=0)]), P.memory)
    shared = memory_parts(Jobs.of([job(zero_stage=1)]), P.memory)
    assert shared["optimizer states"][0] == pytest.approx(whole["optimizer states"][0] / 8)
    assert shared["activations"][0] == whole["activations"][0]


@pytest.mark.parametrize(
    ("name", "family", "framework", "fused"),
    [
        ("NeMo 24.07 Megatron", "megatron", "nemo megatron", True),
        ("Megatron-LM PTD-P (interleaved 1F1B + scatter/gather)", "megatron", "megatron lm", False),
        ("MosaicML Composer+FSDP", "fsdp", "mosaicml composer", True),
        ("DeepSpeed ZeRO-3 (no model parallelism)", "zero", "deepspeed zero", False),
        ("Megatron-DeepSpeed 3D", "zero", "megatron deepspeed", False),
        ("MaxText", "xla", "maxtext", True),
        ("NeMo AutoModel (PyTorch FSDP2)", "fsdp", "nemo automodel", True),
        ("", "fsdp", "unknown", True),
    ],
)
def test_traits_come_from_words_that_a_new_stack_shares(name, family, framework, fused):
    known = traits(name)
    assert (known.family, plain_framework(name), known.fused_attention) == (family, framework, fused)


def test_notes_tell_what_a_name_does_not_and_only_known_stacks_have_effects():
    assert traits("torchtitan", "FSDP eager").eager
    assert traits("torchtitan", "+AsyncTP").asynchronous_tensor
    assert traits("torchtitan", "", "float8 rowwise").row_scaling
    known, unknown = {"framework": "nemo megatron"}, {"family": "no such", "framework": "no such"}
    assert fitted(P).effect(known) != 0 == fitted(P).effect(unknown)
