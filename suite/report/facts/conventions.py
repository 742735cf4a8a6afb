"""How the figures were made, each convention in one line."""

from __future__ import annotations

from collections.abc import Sequence

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, Entry, manifests_of
from suite.spec.algorithms import PPO_NAME
from suite.stats.compare import DEFAULT_MARGIN
from suite.stats.moderated import FEWEST_ROWS


def conventions(entries: Sequence[Entry], in_rounds: bool = False) -> tuple[str, ...]:
    """The report's own, one line each. ``in_rounds``: whether any rows are compared by the differences in rounds."""
    several = {manifest.workload.algorithm.name for manifest in manifests_of(entries)} - {PPO_NAME}
    rate = _RATE.format("iterations" if several else "PPO iterations")
    in_turns = any(entry.record.turns for entry in entries)
    ratios = (_RANKING, *((_ROUNDS,) if in_rounds else ()), *((_TURNS,) if in_turns else ()))
    phases = (_PHASES, *((_PERIODS,) if any(entry.manifest.layout.asynchronous for entry in entries) else ()))
    return (rate, _ROWS, _INTERVAL, *ratios, *phases, *_utilisation(entries), _MEMORY, _SCALING, *_warmup(entries))


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


def _utilisation(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Where a device's peak is known."""
    known = [entry.record.compute for entry in entries if entry.record.compute and entry.record.compute.peak_flops]
    causal = any(compute.hfu_causal is not None for compute in known)
    return (_UTILISATION + (_CAUSAL if causal else ""),) if known else ()


def _warmup(entries: Sequence[Entry]) -> tuple[str, ...]:
    found = sorted({(entry.manifest.measure.warmup, entry.manifest.iterations) for entry in entries})
    words = " or ".join(f"{warmup} + {iterations}" for warmup, iterations in found[:4])
    more = " or others" if len(found) > 4 else ""
    return (f"Iterations: {words}{more} (warm-up, which never counts, + counted).",) if found else ()


_RATE = (
    "Rates: total work over total time of whole {}; an iteration lasts as long as its slowest rank. "
    "Tokens are prompt + response tokens; padding does not count."
)
_ROWS = "Rows: runs of equal manifest hash are pooled, each a fresh set of processes; only runs that succeeded count."
_INTERVAL = (
    "Intervals: [low, high] at 95 %, Student's t on the logarithms of the runs' rates; where at least "
    f"{FEWEST_ROWS} rows have several runs on one machine and kind of device, the variance of each is drawn to what "
    "they share (moderated, Smyth 2004); with one run they come from "
    "its iterations alone and are too narrow to cover another run. Phases, runs' peaks of memory and each phase's eta "
    "have theirs by the same method, each from its own runs alone; a phase that took no measurable time has none."
)
_RANKING = (
    f"Ranking: ratio to the best of equal work on equally many ranks (Welch on logarithms; the bounds of a group of "
    f"more than two rows hold for all its pairs together, by the studentized range where variances are moderated, else "
    f"by Bonferroni); groups are tested one by one, so of twenty "
    f"groups of equal rates one would show a difference; not distinguishable does not mean equal, which needs the "
    f"ratio's 90 % interval within {DEFAULT_MARGIN * 100:g} % of 1; {RUNS_TO_PUBLISH} runs are needed to publish, "
    f"{RUNS_TO_RANK} to rank. The ratios of phases beside the whole are of the rates in them alone; their bounds "
    f"hold for all phases and pairs of a group together, and leave the verdict on the whole as it is."
)
_ROUNDS = (
    "Rounds: rows of a plan took turns, and their rates went up and down together. Ratios and eta of rows that were "
    "made in the same rounds are therefore of runs of the same round (the geometric mean over the rounds), and their "
    "intervals are Student's t on the differences within rounds, in place of Welch; so are those of phases where that "
    "makes them narrower, but each phase's eta, and rows with too few rounds in common, are not. The rates' own "
    "intervals hold what the machine did."
)
_TURNS = (
    "Turns: rows that were started together took turns by iteration, one at work while the others waited. Their "
    "ratios and eta are means of log ratios within turns (the trimmed mean of each start, starts as the sample, their "
    "variance that of turns times a dispersion over all pairs; Student's t). What slowed all of them alike is in their "
    "rates, each with its own wide interval, and makes no run suspect."
)
_PHASES = (
    "Phases: mean seconds per iteration of the slowest rank in each; other is the rest of the iteration. Each interval "
    "is of its phase alone."
)
_PERIODS = (
    "Asynchronous: an iteration is the period from the end of one publication of weights to the end of the next; "
    "samples are those consumed in it, and what filled the pipeline before the first is not counted. Phases are those "
    "of the devices that train, without shares; busy is the time that a role's devices worked, over the time they had."
)
_UTILISATION = (
    "Utilisation: MFU counts the FLOPs that the work needs, HFU those that are executed, recomputed ones among them; "
    "both count attention in full, as PaLM does. MBU counts the bytes that decoding reads."
)
_CAUSAL = (
    " HFU causal counts the attention that a causal mask leaves, about half of it, which is all that a fused causal "
    "kernel computes: what the hardware did lies between the two."
)
_MEMORY = (
    "Memory: greatest peak over ranks, phases and runs, in GiB (2^30 bytes): on a GPU what the allocator "
    "reserved (also shown: how much of that was allocated, and what the whole device held), on a CPU the resident set "
    "less what was resident before the model was built; its interval is of the mean of the runs' peaks, each a "
    "greatest one, and can lie below the greatest of all; the floor is the least that the most demanding phase needs."
)
_SCALING = (
    "Scaling: eta(N; N0) = (rate at N / N) / (rate at N0 / N0), N0 the fewest ranks measured with the same strategy."
)
