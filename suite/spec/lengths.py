"""Distributions of prompt and response lengths, and the lengths that they give."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from pydantic import Field, model_validator

from suite.spec.base import Frozen, UsageError

#: More lengths than a file may list: beyond it a manifest would be all lengths.
MOST_LISTED = 100_000
MOST_TOKENS = 10_000_000
_FORMS = "fixed:512, list:FILE or lognormal:mean=512,sigma=0.6,cap=4096[,at-cap=0.1][,group-correlation=0.3]"


class Lengths(Frozen):
    """Tokens of each sample's prompt or response.

    ``fixed``: ``tokens`` each. ``list``: ``listed``, dealt out in order and from the start again. ``lognormal``:
    ``min(cap, X)`` with log X normal of standard deviation ``sigma`` and X of mean ``mean``; a share ``at_cap`` of the
    samples has the cap whatever X is, as where models run into the limit (the mean is of the others before the cap).
    ``group_correlation``: of log X within the samples of one prompt.
    """

    kind: Literal["fixed", "list", "lognormal"]
    tokens: int | None = Field(default=None, gt=0, le=MOST_TOKENS)
    listed: tuple[int, ...] | None = None
    mean: float | None = Field(default=None, gt=0, le=MOST_TOKENS)
    sigma: float | None = Field(default=None, ge=0, le=5)
    cap: int | None = Field(default=None, gt=0, le=MOST_TOKENS)
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
        if self.kind != "lognormal" and (self.at_cap or self.group_correlation):
            raise ValueError(f"{self.kind} lengths have no at-cap and no group-correlation")
        if self.listed is not None:
            if not 0 < len(self.listed) <= MOST_LISTED:
                raise ValueError(f"a list of lengths has 1 to {MOST_LISTED} numbers, not {len(self.listed)}")
            wrong = [length for length in self.listed if not 0 < length <= MOST_TOKENS]
            if wrong:
                raise ValueError(f"a length is 1 to {MOST_TOKENS} tokens, not {wrong[0]}")
        return self

    @property
    def longest(self) -> int:
        """No sample is longer."""
        return self.tokens or self.cap or max(self.listed or (0,))

    def draw(self, samples: int, group: int, seed: int) -> tuple[int, ...]:
        """The length of each of ``samples`` samples, ``group`` of each prompt side by side. Equal arguments, equal
        lengths, on every machine.

        A lognormal's quantiles are spread evenly and shuffled, so that a small batch already has nearly the
        distribution's mean and tail: a plain draw of dozens would not. The samples of a group share a part of log X.
        """
        if self.kind == "fixed":
            return (self.longest,) * samples
        if self.listed is not None:
            return tuple(self.listed[index % len(self.listed)] for index in range(samples))
        return self._lognormal(samples, group, random.Random(seed))

    def _lognormal(self, samples: int, group: int, generator: random.Random) -> tuple[int, ...]:
        assert self.mean is not None and self.sigma is not None and self.cap is not None
        shared = math.sqrt(self.group_correlation)
        own = math.sqrt(1 - self.group_correlation)
        groups = _normal_scores(-(-samples // group), generator)
        each = _normal_scores(samples, generator)
        mixed = [shared * groups[index // group] + own * each[index] for index in range(samples)]
        at_cap = set(generator.sample(range(samples), round(self.at_cap * samples)))
        center = math.log(self.mean) - self.sigma**2 / 2
        return tuple(
            self.cap if index in at_cap else min(self.cap, max(1, round(math.exp(center + self.sigma * score))))
            for index, score in enumerate(mixed)
        )

    def text(self) -> str:
        """As the command line has it; a list shows how many there are."""
        if self.kind == "fixed":
            return f"fixed:{self.tokens}"
        if self.listed is not None:
            return f"list of {len(self.listed)}, longest {self.longest}"
        extra = "".join(
            f",{name.replace('_', '-')}={getattr(self, name):g}"
            for name in ("at_cap", "group_correlation")
            if getattr(self, name)
        )
        return f"lognormal:mean={self.mean:g},sigma={self.sigma:g},cap={self.cap}{extra}"


def _normal_scores(count: int, generator: random.Random) -> list[float]:
    """Evenly spread quantiles of the standard normal distribution, in random order."""
    normal = NormalDist()
    scores = [normal.inv_cdf((index + 0.5) / count) for index in range(count)]
    generator.shuffle(scores)
    return scores


def parse_lengths(text: str) -> dict[str, Any]:
    """The fields of ``Lengths`` from ``fixed:512``, ``list:FILE`` or ``lognormal:mean=512,sigma=0.6,cap=4096``.

    A file holds whole numbers between white space or commas. Raises UsageError for anything else.
    """
    kind, colon, rest = text.strip().partition(":")
    if not colon or kind not in ("fixed", "list", "lognormal"):
        raise UsageError(f"{text[:60]!r} is no distribution of lengths; write {_FORMS}")
    if kind == "fixed":
        return {"kind": kind, "tokens": _whole(rest, text)}
    if kind == "list":
        return {"kind": kind, "listed": _listed(rest)}
    fields: dict[str, Any] = {"kind": kind}
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        field = name.replace("-", "_")
        if not equals or field not in ("mean", "sigma", "cap", "at_cap", "group_correlation") or field in fields:
            raise UsageError(f"{part[:40]!r} in {text[:60]!r} cannot be read; write {_FORMS}")
        fields[field] = _whole(value, text) if field == "cap" else _number(value, text)
    return fields


def _listed(path: str) -> tuple[int, ...]:
    try:
        content = Path(path).read_text(encoding="utf-8") if Path(path).is_file() else None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the lengths in {path[:80]}: {error}") from error
    if content is None:
        raise UsageError(f"there is no file {path[:80]!r} with lengths")
    if len(content) > 16 * MOST_LISTED:
        raise UsageError(f"{path[:80]} is too long for a list of at most {MOST_LISTED} lengths")
    return tuple(_whole(word, path) for word in re.split(r"[\s,]+", content) if word)


def _whole(value: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", value.strip()):
        raise UsageError(f"{value.strip()[:40]!r} in {where[:60]!r} is no whole number of tokens")
    return int(value)


def _number(value: str, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{value.strip()[:40]!r} in {where[:60]!r} is no number")
    return number
