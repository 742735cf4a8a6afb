"""Hypothesis strategies for shapes, workloads and layouts that divide."""

from hypothesis import strategies as st

from suite.spec.algorithms import Algorithm
from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths, Work
from suite.spec.shape import Experts, Shape
from suite.spec.workload import Workload
from suite.theory.shards import stages

ARCHITECTURES = ("gpt2", "opt", "llama", "qwen2", "qwen3", "mixtral", "qwen3_moe")
WITH_EXPERTS = ("mixtral", "qwen3_moe")


@st.composite
def shapes(draw, architectures=ARCHITECTURES, grouped=True):
    architecture = draw(st.sampled_from(architectures))
    heads = draw(st.sampled_from([1, 2, 4, 8]))
    kv_heads = draw(st.sampled_from([part for part in (1, 2, 4, 8) if part <= heads])) if grouped else heads
    experts, head_width = None, None
    if architecture in WITH_EXPERTS:
        count = draw(st.integers(2, 8))
        experts = Experts(count=count, per_token=draw(st.integers(1, count)))
    if architecture in ("qwen3", "qwen3_moe"):
        head_width = draw(st.none() | st.sampled_from([2, 6, 32]))
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
        head_width=head_width,
        experts=experts,
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


def work(rollouts=16, micro_batch=4, replicas=1, **rest):
    own = {"replica_rollouts": rollouts // replicas, "replica_batch": rollouts // replicas}
    return Work(global_rollouts=rollouts, micro_batch=micro_batch, **own, **rest)


@st.composite
def sample_lengths(draw, count=None):
    """Lengths of ``count`` samples, each its own; of a few where it is left open."""
    count = draw(st.integers(1, 12)) if count is None else count
    tokens = st.lists(st.integers(1, 40), min_size=count, max_size=count).map(tuple)
    return SampleLengths(prompt=draw(tokens), response=draw(tokens))


def learning_by(algorithm, workload):
    """The same work by another algorithm: rloo learns no values, grpo asks for no reference either."""
    return workload.model_copy(update={"algorithm": Algorithm(name=algorithm)})


def even(prompt, response):
    """The work of one sample of these lengths."""
    return Workload(name="w", prompt_tokens=prompt, new_tokens=response, rollouts=1, micro_batch=1)


def uneven(lengths, **changes):
    """A workload of uneven samples, as long as the longest of ``lengths`` at most."""
    body = {"name": "w", "rollouts": len(lengths.prompt), "micro_batch": 1, "prompt_tokens": max(lengths.prompt)}
    return Workload.model_validate({**body, "lengths": {"kind": "list", "listed": list(lengths.response)}, **changes})


def parameters_of(size, workload):
    """Of a workload without its reference: all of them, and those that train."""
    (whole,) = stages(size, workload, layout())
    trained = whole.trainable + whole.critic
    return trained + whole.frozen, trained
