"""Prompts that a table counts but does not tell: how long they are follows from its rates, and rows should agree."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from suite.claims.agreement import some
from suite.claims.conventions import Row, sample_rates, token_rates
from suite.claims.labels import GENERATES
from suite.claims.lengths import PROMPT_FACTOR, PROMPTS, UNKNOWN_LENGTH

#: Rows that have to agree, at least, and their share of all of a table, before the others are called wrong.
_LEAST, _SHARE = 2, 2 / 3


@dataclass(frozen=True)
class _Implied:
    """Tokens of a prompt by a row's rates, and how far rounding and tolerance leave them open."""

    at: int
    tokens: float
    open: float

    def agrees(self, low: float, high: float) -> bool:
        return low - self.open <= self.tokens <= high + self.open


def with_prompts(rows: Sequence[Row], tolerance: float) -> list[Row]:
    """The rows, those of a mean length without a prompt length each with the prompts that most of its source imply.

    Tokens per sample are tokens/s over samples/s. Less the mean length they are the prompt, which is 0 where only
    answers are counted or the mean is of all tokens. Where rows agree, within a factor of two, theirs is the usual one;
    where they do not, and a prompt is possible at all, nothing can be said of the row.
    """
    found = [_with_unknown_length(row, tolerance) for row in rows]
    groups: dict[tuple[object, ...], list[_Implied]] = defaultdict(list)
    for at, row in enumerate(rows):
        implied = _implied(at, row, tolerance)
        if implied is not None:
            groups[(row.words.get("source"), row.words.get("data"))].append(implied)
    for group in groups.values():
        usual, agreeing = _usual(group)
        settled = len(agreeing) >= _LEAST and len(agreeing) >= _SHARE * len(group)
        for each in group:
            row = rows[each.at]
            if settled:
                found[each.at] = replace(row, values={**row.values, PROMPTS: usual}) if usual else row
            elif not each.agrees(0, 0) and _possible(row, each):
                help_text = f"mean prompt length (about {each.tokens:.0f} tokens would explain it)"
                found[each.at] = replace(row, words={**row.words, UNKNOWN_LENGTH: help_text})
    return found


def _implied(at: int, row: Row, tolerance: float) -> _Implied | None:
    values = row.values
    mean, counted = values.get("mean_length"), _tokens_per_sample(values)
    if not mean or not counted or "prompt_length" in values:
        return None
    used = ("tokens", "tokens_per_device", "samples", "samples_per_device", "step_time", "mean_length")
    rounding = sum(row.rounding.get(name, 0.0) for name in used if name in values)
    if "longest" in values and abs(counted - values["longest"]) <= tolerance * counted:
        return None
    return _Implied(at, counted - mean, (tolerance + rounding) * counted)


def _with_unknown_length(row: Row, tolerance: float) -> Row:
    """A row that generates and tells only how long a sequence may be: most samples will have fewer tokens."""
    longest, counted = row.values.get("sequence"), _tokens_per_sample(row.values)
    if GENERATES not in row.words or "mean_length" in row.values or not longest or not counted:
        return row
    if counted >= longest * (1 - tolerance):
        return row
    help_text = f"mean length of prompts and answers (about {counted:.0f} tokens would explain it)"
    return replace(row, words={**row.words, UNKNOWN_LENGTH: help_text})


def _tokens_per_sample(values: Mapping[str, float]) -> float | None:
    """By a rate of tokens and one of samples that do not follow from each other."""
    if "batch_tokens" in values:
        return None
    devices = {"devices": 1.0} if "tokens" in values and "devices" not in values else {}
    tokens, samples = token_rates({**values, **devices}), sample_rates({**values, **devices})
    return next(iter(tokens.values())) / next(iter(samples.values())) if tokens and samples else None


def _usual(group: Sequence[_Implied]) -> tuple[float, list[_Implied]]:
    """The prompt that most rows have, 0 where they count none, and those rows."""
    best: tuple[float, list[_Implied]] = (0.0, [each for each in group if each.agrees(0, 0)])
    for centre in some([each.tokens for each in group if each.tokens > 0]):
        agreeing = [each for each in group if each.agrees(centre / PROMPT_FACTOR, centre * PROMPT_FACTOR)]
        certain = [each.tokens for each in agreeing if not each.agrees(0, 0)]
        if len(agreeing) > len(best[1]) and certain:
            best = (median(certain), agreeing)
    return best


def _possible(row: Row, implied: _Implied) -> bool:
    longest = row.values.get("longest")
    fits = longest is None or row.values["mean_length"] + implied.tokens <= longest + implied.open
    return implied.tokens > 0 and fits
