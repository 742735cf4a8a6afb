"""Which replica scores and trains which samples, so that all have nearly the same number of tokens."""

import heapq
from typing import List, Sequence


def assign_samples(lengths: Sequence[int], replicas: int) -> List[List[int]]:
    """Indices of the samples of each replica: as many for each, nearly equal tokens, the longest first.

    ``lengths``: tokens of each sample, a multiple of ``replicas`` of them. The longest sample left goes to the replica
    with the fewest tokens among those that are not full. Equal arguments, equal results, on every rank.
    """
    each = len(lengths) // replicas
    samples_of_replica: List[List[int]] = [[] for _ in range(replicas)]
    open_replicas = [(0, replica) for replica in range(replicas)]
    for number in sorted(range(len(lengths)), key=lambda index: -lengths[index]):  # of equals the first comes first
        tokens, replica = heapq.heappop(open_replicas)
        samples_of_replica[replica].append(number)
        if len(samples_of_replica[replica]) < each:
            heapq.heappush(open_replicas, (tokens + lengths[number], replica))
    return samples_of_replica
