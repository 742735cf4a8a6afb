"""Generation by an inference engine: how many steps it takes, and what each reads, multiplies and waits for.

Continuous batching (Yu et al., "Orca", OSDI 2022) drops a sample once it is complete and takes up the next; keys and
values lie in pages of one pool (Kwon et al., "vLLM", arXiv 2309.06180). So the time of a replica is close to linear in
two counts: the steps it makes, each of which reads the weights once, and the tokens it makes, each of which reads its
own cache and is multiplied with the weights (Pope et al., arXiv 2211.05102, section 2).
"""

import numpy as np

from suite.planner.formulas.blocks import ELEMENT_BYTES, Numbers

#: Standard deviation of the logarithm of response lengths where only their mean is known: runs that print the longest
#: of a batch, or how many reach the limit, have 0.3 (school mathematics) to 0.6 (reasoning).
USUAL_SPREAD = 0.5
#: Chances and weights of Gauss-Legendre quadrature from 0 to 1: the maximum of n lies below the quantile p^(1/n) with
#: chance p.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
QUANTILES = ((_NODES + 1) / 2, _WEIGHTS / 2)


def expected_maximum(count: Numbers) -> Numbers:
    """Of ``count`` standard normals: 0 of one, 0.56 of two, exact to a thousandth."""
    from scipy.special import ndtri

    unique, back = np.unique(np.maximum(np.asarray(count, float), 1), return_inverse=True)
    found = (ndtri(QUANTILES[0] ** (1 / unique[:, None])) * QUANTILES[1]).sum(-1)
    return np.where(unique > 1, found, 0.0)[back].reshape(np.shape(count))


def fullest_share(spread: Numbers, samples: Numbers, replicas: Numbers) -> Numbers:
    """Tokens of the fullest of ``replicas`` with ``samples`` samples each, over the mean: one and a normal's tail."""
    deviation = np.sqrt(np.expm1(spread**2) / np.maximum(samples, 1))
    return 1 + deviation * expected_maximum(replicas)


def at_once(samples: Numbers, places: Numbers, pool: Numbers, of_sample: Numbers) -> Numbers:
    """Samples that run together: no more than there are, than an engine has places, than the pool of cache holds."""
    return np.maximum(1, np.minimum(samples, np.minimum(places, pool / of_sample)))


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


def weight_read_bytes(layers: Numbers, elements: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers) -> Numbers:
    """Bytes of weights that each decoding step reads, output head in: all of them, once for the whole batch.

    (Pope et al., "Efficiently Scaling Transformer Inference", arXiv 2211.05102, section 2.) Of experts only those that
    the batch meets are among ``elements``.
    """
    return ELEMENT_BYTES * (layers * elements + vocab * hidden) / tensor


def cache_read_bytes(
    sequences: Numbers, prompt: Numbers, new: Numbers, layers: Numbers, width: Numbers, tensor: Numbers
) -> Numbers:
    """Bytes of keys and values that ``sequences`` sequences of one length read in the ``new`` - 1 steps after the
    prefill, ``prompt`` + i positions in step i.

    ``width`` is key-value heads x head dimension (arXiv 2211.05102, section 2: the KV cache grows with the context).
    """
    steps = new - 1
    return position_bytes(sequences * (steps * prompt + steps * (steps - 1) / 2), layers, width, tensor)


def position_bytes(positions: Numbers, layers: Numbers, width: Numbers, tensor: Numbers) -> Numbers:
    """Bytes of keys and values of ``positions`` positions in 16 bit."""
    return 2 * ELEMENT_BYTES * positions * layers * width / tensor


def step_flops(
    sequences: Numbers, layers: Numbers, elements: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers
) -> Numbers:
    """Matrix FLOPs of one decoding step of ``sequences`` sequences."""
    return 2 * sequences * (layers * elements + vocab * hidden) / tensor
