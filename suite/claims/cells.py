"""The number in a cell of a published table, in base units: seconds, FLOP/s, elements, fractions."""

import math
import re
from dataclasses import dataclass

SHARES = ("mfu", "hfu", "efficiency")
TIMES = ("step_time", "train_time")
FLOPS = ("tflops_per_device", "flops_total", "peak_flops")
HOUR = 3600.0
SECONDS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), 24 * HOUR),
}
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_DIGITS = r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:e[+-]?\d{1,3}(?![a-z]))?"
_CELL = re.compile(rf"[~\u2248]?\s*({_DIGITS})\s*(?:(?:\u00b1|\+/-|\+-)\s*({_DIGITS}))?(.*)")
_THOUSANDS = re.compile(r"(?<=\d)[,'_ \u00a0\u2009\u202f](?=\d{3}(?!\d))")
_EUROPEAN = re.compile(r"([+-]?\d{1,3}(?:\.\d{3})+|[+-]?\d{1,12}),(\d{1,2}|\d{4,12})(?!\d)(.*)")
_FLOP_UNIT = re.compile(r"([mgtpe])flops?(?:/s|ps)?(?:(?:/|per)(?:gpu|device))?")
_HOURS_UNIT = re.compile(r"([kmb]?)(?:(?:gpu|device)?-?(?:h|hrs?|hours?))?")
_COUNT_UNIT = re.compile(
    r"([kmbt]?)(?:illion|rillion|n)?(?:(?:tokens?|toks?|samples?|sequences?|seqs?|params?|parameters?|gpus?|layers?)"
    r"(?:(?:/|per)(?:s|sec|second))?(?:(?:/|per)(?:gpu|device))?)?"
)


@dataclass(frozen=True)
class Amount:
    """A number in base units, and how far its print leaves it open: half of its last digit, or the error it states."""

    value: float
    rounding: float


@dataclass(frozen=True)
class Column:
    """A header and what it means; ``scale`` turns a bare number into base units, NaN where the header has no unit."""

    header: str
    meaning: str
    scale: float = 1.0


def amount(text: str, column: Column) -> Amount | None:
    """The number of a cell; ``None`` for a blank, words or an unknown unit, NaN and infinity as they are.

    Thousands may be set apart by commas, spaces, apostrophes or underscores, decimals by a point or a comma that no
    three digits follow. Nothing is evaluated.
    """
    plain = text.strip().strip("*`_ ").lower().replace("\u00d7", "x").replace("\u2212", "-")
    if re.fullmatch(r"[+-]?(nan|inf(inity)?)", plain):
        return Amount(float(plain), 0.0)
    european = _EUROPEAN.fullmatch(plain)
    if european:
        plain = f"{european.group(1).replace('.', '')}.{european.group(2)}{european.group(3)}"
    match = _CELL.fullmatch(_THOUSANDS.sub("", plain))
    if not match:
        return None
    digits, error, unit = match.group(1), match.group(2), re.sub(r"\s+", "", match.group(3))
    scale = _scale(unit, column)
    if scale is None or math.isnan(scale):
        return None
    mantissa, _, exponent = digits.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) if abs(int(exponent or 0)) < 300 else math.inf
    return Amount(float(digits) * scale, max(abs(last * scale) / 2, abs(float(error or 0) * scale)))


def other_reading(text: str, column: Column) -> Amount | None:
    """A bare share read as a fraction where its column is in percent, or the reverse; ``None`` elsewhere."""
    if column.meaning not in SHARES or "%" in text:
        return None
    return amount(text, Column(column.header, column.meaning, 1.0 if column.scale != 1.0 else 1e-2))


def _scale(unit: str, column: Column) -> float | None:
    """What a unit behind a number makes of it; ``None`` where it is not one of this column."""
    meaning = column.meaning
    if unit in ("", "x"):
        return column.scale
    if unit in ("%", "percent", "pct"):
        return 1e-2
    if meaning in TIMES:
        return SECONDS.get(unit)
    if meaning in FLOPS:
        match = _FLOP_UNIT.fullmatch(unit)
        return _PREFIX[match.group(1)] if match else None
    if meaning == "device_hours":
        match = _HOURS_UNIT.fullmatch(unit)
        return HOUR * _PREFIX[match.group(1)] if match else None
    match = _COUNT_UNIT.fullmatch(unit)
    if not match:
        return None
    # A length of 4k is 4,096 tokens.
    return 1024.0 if meaning == "sequence" and match.group(1) == "k" else _PREFIX[match.group(1)]
