"""Time of collectives from volume and bandwidth: rings, groups that span nodes, and what computation hides.

Volumes: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009: a ring
all-gather or reduce-scatter over n ranks moves (n - 1) / n of the whole per rank, an all-reduce twice that.
"""

import numpy as np

from suite.planner.formulas.blocks import Numbers


def gather_bytes(whole: Numbers, ranks: Numbers) -> Numbers:
    """Bytes per rank of an all-gather or a reduce-scatter of ``whole`` bytes."""
    return whole * (ranks - 1) / np.maximum(ranks, 1)


def all_reduce_bytes(whole: Numbers, ranks: Numbers) -> Numbers:
    """Bytes per rank of an all-reduce of ``whole`` bytes."""
    return 2 * gather_bytes(whole, ranks)


def all_to_all_seconds(
    whole: Numbers, ranks: Numbers, stride: Numbers, node_devices: Numbers, link: Numbers, network: Numbers
) -> Numbers:
    """Seconds in which each of ``ranks``, ``stride`` apart, sends equal parts of its ``whole`` bytes to all of them.

    What stays in the node goes over the device's link and the rest over its own network card, both at once: unlike a
    ring's, this traffic crosses the network from every device (Lepikhin et al., "GShard", arXiv 2006.16668, 3.2).
    """
    near = np.minimum(ranks, np.clip(node_devices / stride, 1, node_devices))
    return np.maximum(whole * (near - 1) / ranks / link, whole * (ranks - near) / ranks / network)


def group_bandwidth(
    members: Numbers, stride: Numbers, node_devices: Numbers, link: Numbers, network: Numbers
) -> Numbers:
    """Bytes per second and direction of a ring over ``members`` ranks that are ``stride`` apart.

    Inside a node (or NVLink domain) it is the link's. Across nodes all members of a node share the ring's crossing, so
    their network cards add up, and the link bounds the sum. ``link`` and ``network`` are one direction per device.
    """
    beside = np.clip(node_devices / stride, 1, node_devices)
    return np.where(members * stride <= node_devices, link, np.minimum(link, beside * network))


def overlapped(compute: Numbers, communication: Numbers, sharpness: float) -> Numbers:
    """What communication adds to ``compute`` when the two run at once: nothing while it is short, the rest when long.

    A smooth maximum, (a^k + b^k)^(1/k) - a, because neither hides the other wholly where they are equal.
    """
    larger = np.maximum(np.maximum(compute, communication), 1e-300)
    together = ((compute / larger) ** sharpness + (communication / larger) ** sharpness) ** (1 / sharpness) * larger
    return together - compute
