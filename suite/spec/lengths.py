"""Distributions of prompt and response lengths, and the lengths that they give."""

import math
import os
import random
import re
from collections import defaultdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from suite.spec.base import Frozen, UsageError
from suite.spec.foreign import read_text

#: More lengths than a file may list: beyond it a manifest would be all lengths.
MOST_LISTED = 100_000
MOST_TOKENS = 10_000_000
_MOST_BYTES = 16 * MOST_LISTED
_SHARES = ("at_cap", "group_correlation")
FORMS = "fixed:512, list:FILE or lognormal:mean=512,sigma=0.6,cap=4096[,at-cap=0.1][,group-correlation=0.3]"
_Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]


class Lengths(Frozen):
    """Tokens of each sample's prompt or response.

    ``fixed``: ``tokens`` each. ``list``: ``listed``, dealt out in order and from the start again. ``lognormal``:
    ``min(cap, X)`` with log X normal of standard deviation ``sigma`` and X of mean ``mean``; a share ``at_cap`` of the
    samples has the cap whatever X is, as where models run into the limit (the mean is of the others before the cap).
    ``group_correlation``: of log X within the samples of one prompt."""

    kind: Literal["fixed", "list", "lognormal"]
    tokens: _Tokens | None = None
    listed: Annotated[tuple[_Tokens, ...], Field(min_length=1, max_length=MOST_LISTED, fail_fast=True)] | None = None
    mean: float | None = Field(default=None, gt=0, le=MOST_TOKENS)
    sigma: float | None = Field(default=None, ge=0, le=5)
    cap: _Tokens | None = None
    at_cap: float = Field(default=0.0, ge=0, le=1)
    group_correlation: float = Field(default=0.0, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: Any) -> Any:
        return parse_lengths(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_whole(self) -> "Lengths":
        own = {"fixed": ("tokens",), "list": ("listed",), "lognormal": ("mean", "sigma", "cap")}[self.kind]
        for name in ("tokens", "listed", "mean", "sigma", "cap"):
            if (getattr(self, name) is None) == (name in own):
                raise ValueError(f"{self.kind} lengths {'need' if name in own else 'have no'} {name}")
        if self.mean is not None and self.cap is not None and self.mean > self.cap:
            raise ValueError(f"lengths of mean {self.mean:g} cannot be at most {self.cap} each: raise cap above mean")
        if self.kind != "lognormal" and (self.at_cap or self.group_correlation):
            raise ValueError(f"{self.kind} lengths have no at-cap and no group-correlation")
        return self

    @property
    def longest(self) -> int:
        """No sample is longer."""
        return self.tokens or self.cap or max(self.listed or (0,))

    def draw(self, samples: int, group: int, seed: int) -> tuple[int, ...]:
        """The length of each of ``samples`` samples, ``group`` of each prompt side by side; equal for equal arguments.

        A lognormal's lengths are the means of its equally probable parts, shuffled, so that a small batch already has
        the distribution's mean and tail. The samples of a group share a part of log X, by which they are ranked."""
        if self.kind == "fixed":
            return (self.longest,) * samples
        if self.listed is not None:
            return tuple(self.listed[index % len(self.listed)] for index in range(samples))
        return _drawn(self, samples, group, seed)

    def text(self) -> str:
        """As the command line has it; a list shows how many there are."""
        if self.kind == "fixed":
            return f"fixed:{self.tokens}"
        if self.listed is not None:
            return f"list of {len(self.listed)}, longest {self.longest}"
        extra = [f",{name.replace('_', '-')}={value:g}" for name in _SHARES if (value := getattr(self, name))]
        return f"lognormal:mean={self.mean:g},sigma={self.sigma:g},cap={self.cap}{''.join(extra)}"


@lru_cache(maxsize=64)  # a plan asks for the same lengths again for each of its layouts
def _drawn(lengths: Lengths, samples: int, group: int, seed: int) -> tuple[int, ...]:
    """Only ``random()`` of the generator is used: it alone gives the same numbers in every version of Python."""
    assert lengths.mean is not None and lengths.sigma is not None and lengths.cap is not None
    generator = random.Random(seed)
    groups = _shuffled(range(-(-samples // group)), generator)
    each = _shuffled(range(samples), generator)
    capped = round(lengths.at_cap * samples)
    at_cap = frozenset(_shuffled(range(samples), generator)[:capped])
    others = [index for index in range(samples) if index not in at_cap]
    shared, own = math.sqrt(lengths.group_correlation), math.sqrt(1 - lengths.group_correlation)
    scores = [
        shared * _normal_score(groups[index // group], len(groups)) + own * _normal_score(each[index], samples)
        for index in others
    ]
    found = [lengths.cap] * samples
    for index, length in zip(others, _by_rank(scores, _parts(lengths.mean, lengths.sigma, len(others))), strict=True):
        found[index] = min(lengths.cap, max(1, round(length)))
    return tuple(found)


def _shuffled(numbers: range, generator: random.Random) -> list[int]:
    keys = [generator.random() for _ in numbers]
    return sorted(numbers, key=keys.__getitem__)


def _normal_score(rank: int, count: int) -> float:
    """What the standard normal distribution has at the middle of the ``rank``-th of ``count`` equal parts."""
    return NormalDist().inv_cdf((rank + 0.5) / count)


def _by_rank(scores: list[float], rising: list[float]) -> list[float]:
    """For each score the value of its rank among ``rising``; equal scores get the mean of theirs."""
    shared: dict[float, list[float]] = defaultdict(list)
    for score, value in zip(sorted(scores), rising, strict=False):  # of no score there is one value
        shared[score].append(value)
    means = {score: math.fsum(values) / len(values) for score, values in shared.items()}
    return [means[score] for score in scores]


def _parts(mean: float, sigma: float, count: int) -> list[float]:
    """Means of the ``count`` equally probable parts of a lognormal distribution, rising; their own mean is ``mean``. Up
    to its quantile z the distribution holds the share ``Phi(z - sigma)`` of its mean."""
    if sigma == 0:
        return [mean] * count
    normal = NormalDist()
    inner = [normal.cdf(normal.inv_cdf(part / count) - sigma) for part in range(1, count)]
    return [mean * count * (above - below) for below, above in pairwise([0.0, *inner, 1.0])]


def parse_lengths(text: str) -> dict[str, Any]:
    """The fields of ``Lengths`` from a text as in ``FORMS``; a file holds whole numbers between white space or commas.
    Raises UsageError for anything else."""
    kind, colon, rest = text.strip().partition(":")
    if not colon or kind not in ("fixed", "list", "lognormal"):
        raise UsageError(f"--lengths or --prompt-lengths {text[:60]!r} is no distribution of lengths; write {FORMS}")
    if kind == "fixed":
        return {"kind": kind, "tokens": _number(rest, text, int)}
    if kind == "list":
        path = rest.strip()
        listed = read_text(Path(os.path.expanduser(path)), path[:80], _MOST_BYTES, by_user=True).removeprefix("\ufeff")
        words = re.split(r"[\s,]+", listed)
        return {"kind": kind, "listed": tuple(_number(word, rest, int) for word in words if word)}
    fields: dict[str, Any] = {"kind": kind}
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        field = name.replace("-", "_")
        if not equals or field not in ("mean", "sigma", "cap", *_SHARES) or field in fields:
            raise UsageError(f"{part[:40]!r} in {text[:60]!r} cannot be read; write {FORMS}")
        fields[field] = _number(value, text, int if field == "cap" else float)
    return fields


def _number(value: str, where: str, kind: type[int] | type[float]) -> float:
    """Raises UsageError for what is no finite one, or no whole one where that is wanted."""
    try:
        number = kind(value)
    except ValueError:
        number = math.nan
    if not abs(number) <= MOST_TOKENS:
        what = "whole number of tokens" if kind is int else "number"
        raise UsageError(f"{value.strip()[:40]!r} in {where[:60]!r} is no {what} up to {MOST_TOKENS}")
    return number
