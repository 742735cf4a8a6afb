"""How the figures were made, each convention in one line; whose clock seconds are of, and what is experimental."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, SUITE_CLOCK, Entry
from suite.report.formatting.numbers import few
from suite.stats.compare import DEFAULT_MARGIN
from suite.stats.moderated import FEWEST_ROWS

if TYPE_CHECKING:
    from suite.report.facts.pool import Row


def conventions(entries: Sequence[Entry], in_rounds: bool = False) -> tuple[str, ...]:
    """The report's own. ``in_rounds``: whether any rows are compared by the differences in rounds."""
    in_turns = any(entry.record.turns for entry in entries)
    ratios = (_RANKING, *((_ROUNDS,) if in_rounds else ()), *((_TURNS,) if in_turns else ()))
    peaks = [entry.record.compute for entry in entries if entry.record.compute and entry.record.compute.peak_flops]
    causal = _CAUSAL if any(compute.hfu_causal is not None for compute in peaks) else ""
    utilisation = [f"{_UTILISATION}{causal}"] if peaks else []
    found = sorted({(entry.manifest.measure.warmup, entry.manifest.iterations) for entry in entries})
    words = " or ".join(few([f"{warmup} + {iterations}" for warmup, iterations in found], 4, "others"))
    warmup = [f"Iterations: {words} (warm-up, which never counts, + counted)."] if found else []
    return (_RATE, _ROWS, _INTERVAL, *ratios, _PHASES, *utilisation, _MEMORY, _SCALING, *warmup)


def recorded_conventions(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Those that the records carry, one line each: text that others may have written."""
    records = [entry.record for entry in entries]
    recorded: list[tuple[str, Sequence[str | None]]] = [
        ("Within one run", [record.throughput.convention if record.throughput else None for record in records]),
        ("FLOPs", [record.compute.convention if record.compute else None for record in records]),
        ("Steady state", [record.steady_state.test for record in records]),
    ]
    return tuple(
        f"{name}: {text}." for name, texts in recorded for text in sorted({text.rstrip(".") for text in texts if text})
    )


def clock_of(entries: Sequence[Entry]) -> str:
    """The suite's, or the backend's log where any of its runs tells that its seconds are from there."""
    logged = any((entry.record.environment.worker or {}).get("clock") for entry in entries)
    return f"{entries[0].manifest.backend.name}'s log" if logged else SUITE_CLOCK


def clock_lines(rows: "Sequence[Row]") -> tuple[str, ...]:
    names = ", ".join(f"{row.name} ({row.backend})" for row in rows if row.setting.clock != SUITE_CLOCK)
    line = (
        f"{names}: seconds and counts are those of the trainer's own log. The suite did not measure them, so these "
        "rows are ranked with no other backend's"
    )
    return (line,) if names else ()


def experimental_lines(entries: Sequence[Entry]) -> tuple[str, ...]:
    """A caveat for each backend that its run calls experimental, with what it says of that."""
    found: dict[str, str] = {}
    for entry in entries:
        known = (entry.record.environment.worker or {}).get("experimental")
        if isinstance(known, str):
            found.setdefault(entry.manifest.backend.name, known)
    return tuple(
        f"{backend} is experimental ({known}): its makers tested it on recorded logs and configuration classes alone"
        for backend, known in sorted(found.items())
    )


_RATE = (
    "Rates: total work over total time of whole iterations; an iteration lasts as long as its slowest rank. "
    "Tokens are prompt + response tokens; padding does not count."
)
_ROWS = "Rows: runs of equal manifest hash are pooled, each of fresh processes, if they succeeded. x2: on two ranks."
_INTERVAL = (
    "Intervals: [low, high] at 95 %, Student's t on the logarithms of the runs' figures. Where at least "
    f"{FEWEST_ROWS} rows have several runs on one machine, the variance of each rate is drawn to what they share "
    "(moderated, Smyth 2004). One run gives none."
)
_RANKING = (
    "Ranking: ratio to the best of equal work on as many ranks (Welch on logarithms), with bounds for all pairs of a "
    "group together; groups are tested one by one. Not distinguishable is not equal, which needs the ratio's 90 % "
    f"interval within {DEFAULT_MARGIN * 100:g} % of 1. {RUNS_TO_PUBLISH} runs are needed to publish, {RUNS_TO_RANK} to "
    "rank."
)
_ROUNDS = (
    "Rounds: rows of a plan took turns, and their rates went up and down together, as the rates' own intervals say. "
    "Ratios and eta are of runs of the same round, by Student's t on the differences within rounds."
)
_TURNS = (
    "Turns: rows that were started together took turns by iteration, one at work while the others waited. Their "
    "ratios and eta are means of log ratios within turns (trimmed means of each start, starts as the sample, Student's "
    "t). What slowed all of them alike is in their rates alone, and makes no run suspect."
)
_PHASES = "Phases: mean seconds per iteration of the slowest rank in each; other is the rest of the iteration."
_UTILISATION = (
    "Utilisation: MFU counts the FLOPs that the work needs, HFU those that are executed, recomputed ones among them; "
    "both count attention in full, as PaLM does. MBU counts the bytes that decoding reads."
)
_CAUSAL = (
    " HFU causal counts the attention that a causal mask leaves, about half of it, which is all that a fused causal "
    "kernel computes: what the hardware did lies between the two."
)
_MEMORY = (
    "Memory: greatest peak over ranks, phases and runs, in GiB (2^30 bytes): reserved by the allocator on a GPU, on a "
    "CPU resident less what was before the model was built. The floor is the least that the most demanding phase needs."
)
_SCALING = "Scaling: eta(N; N0) = (rate at N / N) / (rate at N0 / N0), N0 the fewest ranks of the same strategy."
