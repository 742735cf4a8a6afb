"""Bytes that decoding must read from device memory: the numerator of model bandwidth utilisation (MBU)."""

from fractions import Fraction
from math import ceil

from suite.spec.device import Precision
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.adapters import adapter_elements, expert_adapter_elements
from suite.theory.lengths import Alike, decode_batches, generated_together, positions_read
from suite.theory.memory import kv_bytes_per_position
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES, decoding_layout, largest_share

#: Samples that the suite's own vLLM has at one time: what its worker asks for.
ENGINE_SAMPLES = 256


def decode_bytes(
    size: Shape, workload: Workload, work: Work, layout: Layout, precision: Precision, at_once: int | None = None
) -> int:
    """Bytes one device reads in the decode steps of one iteration; of a pipeline, the device that reads most.

    All rollouts of a replica are decoded together, so each of the steps (the prefill gives the first token) reads the
    weights once, whatever holds them between steps, and the keys and values of every sequence so far that is not
    complete. There are as many steps as the longest response of the replica needs, and of uneven replicas the one that
    reads most counts. Of experts a step reads those that its tokens choose (``experts_touched``). Rows looked up in the
    embedding are left out; a tied embedding is read whole as the output head.
    With ``at_once`` only so many run at a time, and the next takes the place of one that is complete.
    """
    held = decoding_layout(layout)
    return max(
        _bytes_of(size, workload, samples, held, precision, at_once)
        for samples in generated_together(workload, work, layout)
    )


def experts_touched(count: int, per_token: int, tokens: int) -> Fraction:
    """Expected number of distinct experts that ``tokens`` tokens choose.

    Each token chooses ``per_token`` of ``count`` experts evenly and independently of the others, so that all leave an
    expert out with probability (1 - per_token / count)^tokens, and count (1 - (1 - per_token / count)^tokens) are
    expected. A trained router is not even and touches fewer. Where a share below e^-64 would be left out, none is.
    """
    if tokens * per_token > 64 * count:
        return Fraction(count)
    return count * (1 - Fraction(count - per_token, count) ** tokens)


def _bytes_of(
    size: Shape, workload: Workload, samples: list[Alike], layout: Layout, precision: Precision, at_once: int | None
) -> int:
    count = parameter_count(size)
    layers = size.layers // layout.pipeline
    head = size.vocab * size.hidden + count.final_norm
    experts = count.experts_per_layer + expert_adapter_elements(size, workload)
    dense = layers * (count.per_layer + adapter_elements(size, workload) - experts) + head
    read = 0
    for steps, tokens in decode_batches(samples, at_once):
        elements = largest_share(dense, layout.tensor) + _expert_elements(size, layers * experts, tokens, layout)
        read += steps * elements * WEIGHT_BYTES[precision]
    return read + positions_read(samples) * kv_bytes_per_position(size, layers, layout, precision)


def _expert_elements(size: Shape, elements: int, tokens: int, layout: Layout) -> int:
    """Expected elements of experts that one device reads in a step; expert parallel ranks see each other's tokens."""
    if size.experts is None:
        return 0
    touched = experts_touched(size.experts.count, size.experts.per_token, tokens * layout.expert)
    return largest_share(ceil(elements * touched / size.experts.count), layout.tensor, layout.expert)
