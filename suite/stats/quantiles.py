"""Quantiles of the distributions that intervals are made with; scipy and numpy are loaded when one is asked for."""

import math
from functools import lru_cache

#: Degrees of freedom from which on a studentized range is taken as that of a known variance, but for its last digits.
_MANY_DEGREES = 2000.0


@lru_cache(maxsize=1024)
def student_quantile(degrees: float, probability: float = 0.975) -> float:
    """Quantile of Student's t with ``degrees`` of freedom, 0.975 by default."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


@lru_cache(maxsize=1024)
def variance_ratio_quantile(above: float, below: float, probability: float) -> float:
    """Quantile of F, the ratio of two variances of equal expectation with so many degrees of freedom."""
    from scipy.special import fdtri

    return float(fdtri(above, below, probability))


def range_quantile(sides: int, degrees: float, probability: float = 0.95) -> float:
    """Quantile of the studentized range: how far apart the outer two of ``sides`` equal means lie, in errors of a mean.

    Of two sides it is Student's t times the square root of two. Degrees are rounded down to at most three digits, so
    that few values are computed; the quantile is then rather too large.
    """
    return _range_quantile(sides, _rounded_down(degrees), probability)


def _rounded_down(degrees: float) -> float:
    if degrees >= _MANY_DEGREES:
        return _MANY_DEGREES
    step = 0.1 if degrees < 10 else 0.5 if degrees < 40 else 5.0 if degrees < 200 else 100.0
    return max(math.floor(degrees / step + 1e-9) * step, min(degrees, 0.1))


@lru_cache(maxsize=4096)
def _range_quantile(sides: int, degrees: float, probability: float) -> float:
    """By bisection between Student's t for one pair and Bonferroni's for all of them."""
    root_two = math.sqrt(2.0)
    tail = 1.0 - probability
    low = root_two * student_quantile(degrees, 1 - tail / 2)
    if sides == 2:
        return low
    high = root_two * student_quantile(degrees, 1 - tail / (sides * (sides - 1)))
    while high - low > 1e-5 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _range_probability(middle, sides, degrees) >= probability else (middle, high)
    return high


def _range_probability(width: float, sides: int, degrees: float) -> float:
    """That ``sides`` standard normals, over an independent estimate of their deviation, span at most ``width``.

    Sides times the integral of phi(z) (Phi(z) - Phi(z - w s))^(sides - 1) over z, averaged over the deviation s, whose
    square is chi squared over its degrees: Gauss-Legendre on its probability, the trapezoidal rule on z.
    """
    import numpy
    from scipy.special import ndtr

    deviations, weights = _deviations(degrees)
    points = numpy.linspace(-8.0, 8.0, 97)
    density = numpy.exp(-(points**2) / 2) / math.sqrt(2 * math.pi)
    inside = ndtr(points) - ndtr(points - width * deviations[:, None])
    return float(sides * (points[1] - points[0]) * (weights @ (inside ** (sides - 1) @ density)))


@lru_cache(maxsize=256)
def _deviations(degrees: float):  # type: ignore[no-untyped-def]
    """Nodes and weights over the distribution of an estimated standard deviation of 1."""
    import numpy
    from scipy.special import gammaincinv

    nodes, weights = numpy.polynomial.legendre.leggauss(64)
    return numpy.sqrt(2 * gammaincinv(degrees / 2, (nodes + 1) / 2) / degrees), weights / 2
