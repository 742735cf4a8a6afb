"""Hypothesis strategies for shapes, workloads and layouts that divide."""

from hypothesis import strategies as st

from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.shape import Shape
from suite.spec.workload import Workload

ARCHITECTURES = ("gpt2", "opt", "llama")


@st.composite
def shapes(draw, architectures=ARCHITECTURES, grouped=True):
    architecture = draw(st.sampled_from(architectures))
    heads = draw(st.sampled_from([1, 2, 4, 8]))
    kv_heads = draw(st.sampled_from([part for part in (1, 2, 4, 8) if part <= heads])) if grouped else heads
    return Shape(
        name="drawn",
        architecture=architecture,
        layers=draw(st.integers(1, 8)),
        hidden=heads * draw(st.sampled_from([2, 4, 8, 16])),
        ffn=draw(st.integers(1, 100)) * 8,
        heads=heads,
        kv_heads=kv_heads,
        vocab=draw(st.integers(1, 3000)),
        positions=draw(st.integers(1, 300)),
        tied_embeddings=draw(st.booleans()),
    )


@st.composite
def workloads(draw, layers):
    trainable = draw(st.none() | st.integers(0, layers))
    reference = "full" if trainable is None else draw(st.sampled_from(["full", "hydra"]))
    return Workload(
        name="drawn",
        prompt_tokens=draw(st.integers(1, 64)),
        new_tokens=draw(st.integers(1, 64)),
        rollouts=draw(st.integers(1, 16)),
        ppo_epochs=draw(st.integers(1, 3)),
        micro_batch=draw(st.integers(1, 8)),
        trainable_layers=trainable,
        reference=reference,
    )


def layout(tensor=1, pipeline=1, data=1, **rest):
    return Layout(devices_per_node=tensor * pipeline * data, tensor=tensor, pipeline=pipeline, data=data, **rest)


def work(rollouts=16, micro_batch=4):
    return Work(global_rollouts=rollouts, replica_rollouts=rollouts, replica_batch=rollouts, micro_batch=micro_batch)
