"""What an underivable figure lacks: the fewest columns from which it would follow."""

from itertools import combinations

from suite.claims.agreement import COUNTED
from suite.claims.conventions import Row, expected
from suite.claims.labels import EXPERTS
from suite.claims.lengths import UNKNOWN_LENGTH
from suite.claims.scaling import SCALING

#: What could be added to a table, the most usual first.
_COLUMNS = {
    "step_time": "step time",
    "global_batch": "batch size",
    "devices": "number of GPUs",
    "sequence": "sequence length",
    "params": "parameters",
    "peak_flops": "GPU model or its peak",
    "tokens": "tokens/s",
    "training_tokens": "trained tokens",
}
_RATES = {"tokens", "tokens_per_device", "samples", "samples_per_device", "step_time", "tflops_per_device", "mfu"}
_MOST_COLUMNS = 3


#: What would help rows of one table, by what they have: rows with the same columns need the same.
Known = dict[tuple[object, ...], str]


def needed(meaning: str, row: Row, known: Known) -> str:
    """What to add, as words for people; empty where nothing would help."""
    if UNKNOWN_LENGTH in row.words:
        return row.words[UNKNOWN_LENGTH]
    key = (meaning, frozenset(row.values), row.words.get(EXPERTS), bool(row.words.get("device")))
    if key not in known:
        known[key] = _needed(meaning, row)
    return known[key]


def _needed(meaning: str, row: Row) -> str:
    if meaning in SCALING:
        return "tokens/s or step time of all rows" if _RATES.isdisjoint(row.values) else "the row that it is against"
    if meaning == "peak_flops":
        return "a GPU model whose data sheet is known"
    if meaning in COUNTED and EXPERTS in row.words and "active_params" not in row.values:
        return "active parameters of the mixture of experts"
    lacking = [name for name in _COLUMNS if name not in row.values and name != meaning]
    for size in range(1, _MOST_COLUMNS + 1):
        for names in combinations(lacking, size):
            added = Row(row.line, {**row.values, **dict.fromkeys(names, 1.0)}, row.words)
            if any(not entry.wrong for entry in expected(meaning, added)):
                return " and ".join(_COLUMNS[name] for name in names)
    return ""
