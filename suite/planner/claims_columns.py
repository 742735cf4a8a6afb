"""What a column means, by its name, and the numbers in its cells in base units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.planner.claims_table import Table
from suite.spec.base import UsageError

#: Patterns of normalised headers, most telling first: a per-device rate before a total.
_PATTERNS = (
    ("source", r"source( id)?"),
    ("peak_flops", r"peak (t?flops?( s)?|flop rate).*"),
    ("hfu", r"hfu.*|hardware flops? utili[sz]ation|hw flops utili[sz]ation.*"),
    ("mfu", r"mfu( (percent|ratio|bf16|fp16|fp8|pct))*|model flops? utili[sz]ation( percent)?"),
    (
        "tflops_per_device",
        r"(model |hw |hardware |achieved )?(tflops?|tflop s)( s)?( (per |/)?(gpu|device|card)s?)?( tflop s.*)?",
    ),
    ("efficiency", r"(weak |strong )?(scaling )?(efficiency|eta)( .*)?|(weak|strong) scaling( percent)?"),
    ("speedup", r"speed ?up( .*)?|relative throughput"),
    ("tokens_per_device", r"(throughput )?(tokens?|toks?)( (per )?(s|sec|second))( (per )?(gpu|device|card)s?)( .*)?"),
    ("tokens_per_device", r"(tokens?|toks?) (per )?(gpu|device) (per )?(s|sec|second)"),
    ("tokens", r"(throughput )?(tokens?|toks?)( (per )?(s|sec|second))( tokens s)?"),
    ("samples_per_device", r"(samples?|sequences?|seqs?)( (per )?(s|sec|second))( (per )?(gpu|device|card)s?)( .*)?"),
    ("samples", r"(throughput )?(samples?|sequences?|seqs?)( (per )?(s|sec|second))( samples s)?"),
    (
        "step_time",
        r"(mean |average |training )?(step|iteration|iter)( time)?( in| m?s| sec| (milli)?seconds?)*",
    ),
    ("step_time", r"time per (step|iteration).*"),
    ("global_batch", r"(global )?batch( size)?( seqs| sequences| samples)?|gbs"),
    ("sequence", r"(seq|sequence)( len| length)?|seqlen|context length"),
    ("devices", r"(n |num |number of )?(gpus?|devices?|cards|accelerators|world size)( count)?|of gpus"),
    ("params", r"(params?|parameters|model size|size)( b| m| billions?| millions?| b params)*"),
    ("layers", r"(n |num )?layers"),
    ("hidden", r"hidden( size)?|d model"),
    ("ffn", r"ffn( size)?|ffn hidden size|intermediate size"),
    ("heads", r"(n |num )?(attention )?heads"),
    ("kv_heads", r"(n |num )?(kv|key value) heads|query groups"),
    ("vocab", r"vocab(ulary)?( size)?"),
    ("device", r"gpu model|device( name| model| type)?|gpu( type| name)?|hardware|accelerator"),
    ("device_gib", r"gpu mem gb|memory gb"),
    ("precision", r"precision|dtype"),
    ("model", r"model( name)?"),
)
TEXTS = ("source", "device", "precision", "model")
MEANINGS = tuple(dict.fromkeys(name for name, _ in _PATTERNS))
_SHARES = ("mfu", "hfu", "efficiency")
_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "x": 1.0, "%": 1e-2, "ms": 1e-3, "s": 1.0}
_NUMBER = re.compile(
    r"[~\u2248]?\s*([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:e[+-]?\d{1,3})?)\s*(k|m|b|t|x|%|ms|s)?"
)
_BARE_BILLIONS = 1e5
_RATIO = 1.5


@dataclass(frozen=True)
class Amount:
    """A number in base units (seconds, FLOP/s, elements, fractions), and half of its last printed digit."""

    value: float
    rounding: float


@dataclass(frozen=True)
class Column:
    """A header and what it means; ``scale`` turns a bare number into base units."""

    header: str
    meaning: str
    scale: float = 1.0


def recognised(table: Table, mapping: Mapping[str, str]) -> list[Column]:
    """Columns that mean something, a mapping going before a name; the first of two with one meaning counts.

    Raises UsageError for a mapping of a column or to a meaning that is not there, and where no column is known.
    """
    for header, meaning in mapping.items():
        if header not in table.headers:
            raise UsageError(
                f"--column {header!r}: there is no such column; there are {', '.join(table.headers)[:300]}"
            )
        if meaning not in MEANINGS:
            raise UsageError(f"--column {header}: {meaning!r} is no meaning; use one of {', '.join(MEANINGS)}")
    found: list[Column] = []
    for header in sorted(table.headers, key=lambda name: name not in mapping):
        known = mapping.get(header) or meaning_of(header)
        if known and all(known != column.meaning for column in found):
            cells = [row.cells[header] for row in table.rows]
            found.append(Column(header, known, _scale(header, known, cells)))
    if not any(column.meaning not in TEXTS for column in found):
        raise UsageError(f"no column is known among {', '.join(table.headers)[:300]}; say --column NAME=MEANING")
    return sorted(found, key=lambda column: table.headers.index(column.header))


def meaning_of(header: str) -> str | None:
    """What a header says by its words; ``None`` where it is not known."""
    plain = re.sub(r"[^a-z0-9%]+", " ", header.lower().replace("\u03b7", " eta ")).replace("%", " percent ")
    plain = " ".join(plain.split())
    return next((meaning for meaning, pattern in _PATTERNS if re.fullmatch(pattern, plain)), None)


def amount(text: str, column: Column) -> Amount | None:
    """The number of a cell; ``None`` for a blank or for words, NaN and infinity as they are. Nothing is evaluated."""
    plain = text.strip().strip("*`_ ").lower().replace("\u00d7", "x").replace("\u2212", "-")
    if re.fullmatch(r"[+-]?(nan|inf(inity)?)", plain):
        return Amount(float(plain), 0.0)
    plain = re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", plain)
    match = _NUMBER.fullmatch(plain)
    if not match:
        return None
    digits, suffix = match.group(1), match.group(2) or ""
    scale = _SUFFIX[suffix] if suffix not in ("", "x") else column.scale
    if suffix in ("k", "m", "b", "t") and column.meaning in ("tflops_per_device", "peak_flops"):
        return None
    mantissa, _, exponent = digits.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) if abs(int(exponent or 0)) < 300 else math.inf
    return Amount(float(digits) * scale, abs(last * scale) / 2)


def _scale(header: str, meaning: str, cells: Sequence[str]) -> float:
    words = set(re.sub(r"[^a-z%]+", " ", header.lower()).split())
    bare = [found.value for cell in cells if (found := amount(cell, Column("", meaning))) and "%" not in cell]
    bare = sorted(value for value in bare if math.isfinite(value))
    if meaning == "step_time":
        return 1e-3 if words & {"ms", "milliseconds", "millisecond"} else 1.0
    if meaning in ("tflops_per_device", "peak_flops"):
        return 1e12
    if meaning == "params":
        told = 1e6 if words & {"m", "millions", "million"} else 1e9
        return told if told == 1e6 or words & {"b", "billions"} or not bare or bare[-1] < _BARE_BILLIONS else 1.0
    if meaning in _SHARES:
        if words & {"%", "percent", "pct"}:
            return 1e-2
        # The reference of a scaling efficiency is 1 or 100; an MFU is a fraction where most values are.
        typical = (bare[0] if meaning == "efficiency" else bare[len(bare) // 2]) if bare else 0.0
        return 1.0 if "ratio" in words or typical <= _RATIO else 1e-2
    return 1.0
