"""Bytes that decoding must read from device memory: the numerator of model bandwidth utilisation (MBU)."""

from __future__ import annotations

from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import adapter_elements
from suite.theory.memory import kv_bytes_per_position
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES, largest_share


def decode_bytes(size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision) -> int:
    """Bytes one device reads in the decode steps of one iteration; of a pipeline, the device that reads most.

    All rollouts of a replica are decoded together, so each of the new_tokens - 1 steps (the prefill gives the first
    token) reads the weights once, whatever holds them between steps, and the keys and values of every sequence so far.
    Rows looked up in the embedding are left out; a tied embedding is read whole as the output head.
    """
    count = parameter_count(size)
    layers = size.layers // layout.pipeline
    head = size.vocab * size.hidden + count.final_norm
    per_layer = count.per_layer + adapter_elements(size, workload)
    weights = largest_share(layers * per_layer + head, layout.tensor) * WEIGHT_BYTES[precision]
    steps = workload.new_tokens - 1
    positions = steps * workload.prompt_tokens + steps * (steps - 1) // 2
    cache = positions * kv_bytes_per_position(size, layers, layout, precision)
    return steps * weights + work.replica_rollouts * cache
