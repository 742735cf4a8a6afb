"""What a column means, by its name and its cells, and in which unit its bare numbers are."""

import math
import re
from collections.abc import Mapping, Sequence

from suite.claims.cells import FLOPS, HOUR, SECONDS, SHARES, TIMES, Column, amount
from suite.claims.table import Table
from suite.spec.base import UsageError

#: Patterns of normalised headers, most telling first: a per-device rate before a total.
_PATTERNS = (
    ("source", r"source( id)?"),
    ("peak_flops", r"peak (t?flops?( s)?|flop rate).*"),
    ("hfu", r"hfu.*|hardware flops? utili[sz]ation|hw flops utili[sz]ation.*"),
    ("mfu", r"mfu( (percent|ratio|bf16|fp16|fp8|pct))*|model flops? utili[sz]ation( mfu)?( percent)?"),
    ("mfu", r"(percent|percentage|pct)( of)?( theoretical| the)? peak( t?flops?( s)?)?"),
    (
        "tflops_per_device",
        r"(model |hw |hardware )?(tera ?flops?|tflops?)( s)?( (per )?(gpu|device|card)s?)?( tflop s.*)?",
    ),
    ("flops_total", r"(aggregate |total )?(p|peta ?)flops?( s)?|(aggregate|total) (t|tera ?)flops?( s)?"),
    ("efficiency", r"(weak |strong )?(scaling )?(efficiency|eta)( .*)?|(weak|strong) scaling( percent)?"),
    ("speedup", r"(relative )?speed ?up( .*)?|relative throughput"),
    (
        "tokens_per_device",
        r"((training )?throughput )?(k ?)?(tokens?|toks?)( (per )?(s|sec|second))( (per )?(gpu|device|card)s?)( .*)?",
    ),
    ("tokens_per_device", r"(tokens?|toks?) (per )?(gpu|device) (per )?(s|sec|second)|tgs"),
    ("tokens", r"((training )?throughput )?(k ?)?(tokens?|toks?)( (per )?(s|sec|second))( tokens s)?"),
    (
        "samples_per_device",
        r"((training )?throughput )?(samples?|sequences?|seqs?)( (per )?(s|sec|second))"
        r"( (per )?(gpu|device|card)s?)( .*)?",
    ),
    ("samples", r"((training )?throughput )?(samples?|sequences?|seqs?)( (per )?(s|sec|second))( samples s)?"),
    (
        "step_time",
        r"(training |total )*(step|iteration|iter)( time)?( in| m?s| sec| (milli)?seconds?)*",
    ),
    ("step_time", r"time per (step|iteration).*|(m?s|sec|seconds?) (per )?(step|iteration|iter)"),
    (
        "train_time",
        r"(total |end to end |e2e )?(training|train|wall ?clock|wall) time"
        r"( in)?( s| sec| seconds| min| minutes| h| hrs?| hours?| d| days?)*",
    ),
    (
        "device_hours",
        r"(total |training |time )?(gpu|device|accelerator|[avhb]\d00) (hours?|hrs?|days?)( k| thousand)?",
    ),
    (
        "training_tokens",
        r"(total |training |train |n |num |number of |of )*tokens?"
        r"( trained| total| seen| b| t| m| billions?| trillions?| millions?)*",
    ),
    ("global_batch", r"(global )?batch( size)?( seqs| sequences| samples)?|(g )?gbs"),
    ("batch_tokens", r"(global )?batch( size)?( in)? (tokens|toks)|tokens per (batch|step|iteration)"),
    (
        "mean_length",
        r"(g )?(mean|avg|average) (gen|generated|generation|response|resp|answer|completion|output|seq|sequence)"
        r"( seq| sequence)?( len| length)?( tokens)?|(resp|response|seq|sequence)( len| length) (mean|avg|average)",
    ),
    (
        "prompt_length",
        r"((mean|avg|average) )?(prompt|input)( len| length| tokens)( mean| avg| tokens)*",
    ),
    ("sequence", r"(t )?(max |maximum |total )*(seq|sequence)( len| length)?( tokens)?|seqlen|context length"),
    ("devices", r"(n |num |number of |of |total )?(gpus?|devices?|cards|accelerators|world size)( count)?"),
    (
        "active_params",
        r"(number of |n |num )?(active|activated) (params?|parameters)( b| m| billions?| millions?)*",
    ),
    (
        "params",
        r"(number of |n |num |total |of )*(params?|parameters|model size|size)( b| m| billions?| millions?| b params)*",
    ),
    ("nodes", r"(n |num |number of |of |total )*nodes"),
    ("layers", r"(n |num |number of |of )?layers"),
    ("hidden", r"hidden( size)?|d model"),
    ("ffn", r"ffn( size)?|ffn hidden size|intermediate size"),
    ("heads", r"(n |num |number of |of )?(attention )?heads"),
    ("kv_heads", r"(n |num )?(kv|key value) heads|query groups"),
    ("vocab", r"vocab(ulary)?( size)?"),
    ("device", r"gpu model|device( name| model| type)?|gpu( type| name)?|hardware|accelerator"),
    ("device_gib", r"gpu mem gb|memory gb"),
    ("precision", r"precision|dtype|number format"),
    ("data", r"data ?sets?|environment|benchmark"),
    ("model", r"model( name)?"),
)
TEXTS = ("source", "device", "precision", "model", "data")
MEANINGS = tuple(dict.fromkeys(name for name, _ in _PATTERNS))
_TOKEN_WORDS = {
    1e6: {"m", "millions", "million"},
    1e9: {"b", "billions", "billion"},
    1e12: {"t", "trillions", "trillion"},
}
_QUALIFIERS = re.compile(r"^((achieved|average|avg|mean|median|measured|observed|overall|effective) )+")
_BARE_BILLIONS = 1e5
_RATIO = 1.5
_MANY = re.compile(r"(\d{1,6})\s*[x\u00d7]\s*([A-Za-z].*)")


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
        cells = [row.cells[header] for row in table.rows]
        known = mapping.get(header) or _by_cells(meaning_of(header), cells)
        if known and all(known != column.meaning for column in found):
            found.append(Column(header, known, _scale(header, known, cells)))
    if not any(column.meaning not in TEXTS for column in found):
        raise UsageError(f"no column is known among {', '.join(table.headers)[:300]}; use --column NAME=MEANING")
    return sorted(found, key=lambda column: table.headers.index(column.header))


def meaning_of(header: str) -> str | None:
    """What a header means by its words; ``None`` where it is not known."""
    plain = re.sub(r"[^a-z0-9%]+", " ", header.lower().replace("\u03b7", " eta ")).replace("%", " percent ")
    plain = " ".join(plain.split())
    words = (plain, _QUALIFIERS.sub("", plain))
    return next((meaning for text in words for meaning, pattern in _PATTERNS if re.fullmatch(pattern, text)), None)


def devices_in(text: str) -> tuple[float | None, str]:
    """8 and "A100-80GB" of "8x A100-80GB"; ``None`` and the text for a device alone."""
    match = _MANY.fullmatch(text.strip())
    return (float(match.group(1)), match.group(2)) if match else (None, text)


def _by_cells(meaning: str | None, cells: Sequence[str]) -> str | None:
    """A header such as GPU counts devices or names one: what most of its cells hold decides."""
    if meaning not in ("devices", "device"):
        return meaning
    filled = [cell for cell in cells if cell]
    numbers = sum(amount(cell, Column("", "devices")) is not None for cell in filled)
    return "devices" if 2 * numbers > len(filled) else "device"


def _scale(header: str, meaning: str, cells: Sequence[str]) -> float:
    words = set(re.sub(r"[^a-z%]+", " ", header.lower()).split())
    bare = [found.value for cell in cells if (found := amount(cell, Column("", meaning))) and "%" not in cell]
    bare = sorted(value for value in bare if math.isfinite(value))
    if meaning in TIMES:
        named = [SECONDS[word] for word in SECONDS if word in words]
        return named[0] if named else 1.0 if meaning == "step_time" else math.nan
    if meaning in FLOPS:
        return 1e15 if any(word.startswith(("pflop", "petaflop")) for word in words) else 1e12
    if meaning == "device_hours":
        return HOUR * (24 if words & {"days", "day"} else 1) * (1e3 if words & {"k", "thousand"} else 1)
    if meaning in ("params", "active_params"):
        unit = 1e6 if words & {"m", "millions", "million"} else 1e9
        named_billions = words & {"b", "billions", "billion"}
        return unit if unit == 1e6 or named_billions or not bare or bare[-1] < _BARE_BILLIONS else 1.0
    if meaning in ("training_tokens", "batch_tokens"):
        return next((size for size, names in _TOKEN_WORDS.items() if words & names), 1.0)
    if meaning in ("tokens", "tokens_per_device"):
        return 1e3 if words & {"k", "ktokens", "ktok"} else 1.0
    if meaning in SHARES:
        if words & {"%", "percent", "pct", "percentage"}:
            return 1e-2
        # The reference of a scaling efficiency is 1 or 100; an MFU is a fraction where most values are.
        typical = (bare[0] if meaning == "efficiency" else bare[len(bare) // 2]) if bare else 0.0
        return 1.0 if "ratio" in words or typical <= _RATIO else 1e-2
    return 1.0
