"""Generation by an inference engine: how many steps it takes, and what each reads, multiplies and waits for.

Continuous batching (Yu et al., "Orca", OSDI 2022) drops a sample once it is complete and takes up the next; keys and
values lie in pages of one pool (Kwon et al., "vLLM", arXiv 2309.06180). So the time of a replica is close to linear in
two counts: the steps it makes, each of which reads the weights once, and the tokens it makes, each of which reads its
own cache and is multiplied with the weights (Pope et al., arXiv 2211.05102, section 2).
"""

from __future__ import annotations

import numpy as np

from suite.planner.formulas.blocks import Numbers

#: Standard deviation of the logarithm of response lengths where only their mean is known: runs that print the longest
#: of a batch, or how many reach the limit, have 0.3 (school mathematics) to 0.6 (reasoning).
USUAL_SPREAD = 0.5


def expected_longest(mean: Numbers, spread: Numbers, cap: Numbers, count: Numbers) -> Numbers:
    """Tokens of the longest of ``count`` responses of lognormal length, at most ``cap``.

    The expected maximum of n normals is about sqrt(2 ln n) - (ln ln n + ln 4 pi) / (2 sqrt(2 ln n)) (David and
    Nagaraja, "Order Statistics", 2003, section 10.5).
    """
    root = np.sqrt(2 * np.log(np.maximum(count, 2)))
    beyond = np.maximum(0, root - (np.log(root**2 / 2) + np.log(4 * np.pi)) / (2 * root))
    return np.minimum(cap, np.maximum(mean, mean * np.exp(spread * beyond - spread**2 / 2)))


def fullest_share(spread: Numbers, samples: Numbers, replicas: Numbers) -> Numbers:
    """Tokens of the fullest of ``replicas`` with ``samples`` samples each, over the mean: one and a normal's tail."""
    deviation = np.sqrt(np.expm1(spread**2) / np.maximum(samples, 1))
    return 1 + deviation * np.sqrt(2 * np.log(np.maximum(replicas, 1)))


def at_once(samples: Numbers, places: Numbers, pool: Numbers, of_sample: Numbers) -> Numbers:
    """Samples that run together: no more than there are, than an engine has places, than the pool of cache holds."""
    return np.maximum(1, np.minimum(samples, np.minimum(places, pool / of_sample)))


def refilled_steps(samples: Numbers, mean: Numbers, together: Numbers) -> Numbers:
    """Steps while every place is taken: what the samples need, shared by those that run together."""
    return samples * mean / together


def steps_to_the_last(samples: Numbers, mean: Numbers, longest: Numbers, together: Numbers) -> Numbers:
    """Steps until the last sample is complete: waiting samples go through first, then the longest runs out alone.

    Exact where all have one length and where all run together; between the two it takes the last sample that is taken
    up to be the longest, an upper bound (Graham, "Bounds on multiprocessing timing anomalies", 1969).
    """
    return (samples - together) * mean / together + longest


def cache_read(samples: Numbers, prompt: Numbers, mean: Numbers, spread: Numbers) -> Numbers:
    """Positions of the cache that ``samples`` read over all their steps: each step reads what stands before it.

    The mean of squared lengths of a lognormal is exp(spread^2) times the squared mean.
    """
    return samples * (mean * prompt + mean**2 * np.exp(spread**2) / 2)


def cache_ranks(tensor: Numbers, kv_heads: Numbers, latent: Numbers) -> Numbers:
    """Over how many ranks keys and values are divided: at most one key-value head each, and a latent of all heads not
    at all (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    return np.where(latent > 0, 1, np.minimum(tensor, kv_heads))
