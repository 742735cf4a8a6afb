"""What clock, probes and events cost, and what the barriers do that the clock needs."""

import statistics
from dataclasses import dataclass

from benchmarks.ranks import one_manifest, run_ranks
from benchmarks.verdict import Interval, Row, Verdict, at_most, trimmed_mean
from suite.spec.manifest import Manifest

LIMIT = 0.01
SIZE, TURNS = "8M", 30
#: What the clock does at a phase's edges does not depend on the model, so elapsed times are compared where an
#: iteration is shortest, and least disturbed in seconds.
SHORT_SIZE, SHORT_WORK, SHORT_TURNS = "1M", {"new_tokens": 2}, 300
CASES = (("deepspeed", 1), ("megatron", 1), ("deepspeed", 2), ("megatron", 2))


@dataclass(frozen=True)
class Cost:
    """Of one iteration: seconds that the recorder's own code takes on a rank's way, not waiting for device and ranks
    (``direct``); by how much an iteration takes longer with everything on than with the barriers alone (``elapsed``),
    and with the barriers than without (``barriers``, on several ranks); and the median of its seconds."""

    direct: Interval
    elapsed: Interval
    barriers: Interval | None
    iteration_seconds: float

    def verdict(self) -> Verdict:
        """Whether the recorder's own code is within the limit."""
        return at_most(self.direct.over(self.iteration_seconds), LIMIT)


def measure(manifest: Manifest, turns: int) -> Cost:
    """Iterations of one process that take turns: with everything, with the barriers alone and bare."""
    told = run_ranks("overhead", manifest, turns)
    seconds = told["seconds"]
    bare = seconds.get("bare")
    return Cost(
        direct=trimmed_mean(told["direct"]),
        elapsed=difference(seconds["on"], seconds["edges"]),
        barriers=None if bare is None else difference(seconds["edges"], bare),
        iteration_seconds=statistics.median(seconds["edges"]),
    )


def difference(longer: list[float], shorter: list[float]) -> Interval:
    """Seconds that the first of each pair takes more."""
    return trimmed_mean([above - below for above, below in zip(longer, shorter, strict=True)])


def rows() -> list[Row]:
    table = []
    for backend, ranks in CASES:
        usual = measure(one_manifest(backend, SIZE, ranks, 1), TURNS)
        short = measure(one_manifest(backend, SHORT_SIZE, ranks, 1, workload=SHORT_WORK), SHORT_TURNS)
        where = f"{backend} {SIZE}, {ranks} rank{'s' if ranks > 1 else ''}"
        whole = usual.iteration_seconds
        table.append(_row(f"clock, probes and events by their own time, {where}", usual.direct, whole, LIMIT))
        table.append(_row(f"the same by elapsed time of a short iteration, {where}", short.elapsed, whole, LIMIT))
        if short.barriers is not None:
            table.append(_row(f"barriers at phase edges by elapsed time, {where}", short.barriers, whole, None))
    return table


def _row(what: str, cost: Interval, whole: float, limit: float | None) -> Row:
    share = cost.over(whole)
    figure = f"{share.text('+.2%')} of {whole:.3f} s ({1000 * cost.value:+.2f} ms)"
    return Row(what, figure) if limit is None else Row(what, figure, f"{limit:.0%}", at_most(share, limit))
