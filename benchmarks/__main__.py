"""Run every benchmark of the suite itself and write docs/self-benchmarks.md."""

import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks import containers, control, overhead, planner_speed, report_speed, starting, startup, trl, trlx
from benchmarks.verdict import Row
from suite.conduct.running.provenance import git_commit
from suite.launch.probe import host_facts

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "self-benchmarks.md"
#: those that time ranks come first, while nothing else has warmed the machine up
BENCHMARKS = (overhead, control, starting, trlx, trl, startup, report_speed, planner_speed, containers)

TEXT = """# What the suite itself costs

Written by `make bench-self`; run it on your own machine. {when}, commit {commit}.
{cpu}, {cores} cores, Python {python}. It took {minutes:.0f} minutes. The load average before it was {load:.2f};
other work on the machine widens the intervals.

{summary}

| what | measured | limit | verdict |
|---|---|---|---|
{rows}

A verdict comes from the 95 % interval in brackets: *met* where all of it is within the limit, *not met* where all of
it is beyond, *cannot tell* where the limit lies inside.

- Clock, probes and events by their own time: seconds between entering and leaving the recorder's code on rank 0,
  added up over an iteration, less what it waits there for the device and for other ranks. Mean over {turns}
  iterations.
- By elapsed time of a short iteration: iterations of one process take turns with everything on and with only the
  barriers at phase edges, each timed from outside, barrier to barrier, with the writing of its events. What the clock
  does at a phase edge does not depend on the model, so this compares iterations of {short_size} with {short_tokens}
  new tokens, whose seconds vary least, and gives the difference as a share of the iteration of the named size.
  {short_turns} pairs. It also sees what the recorder costs elsewhere: the thread that puts events on disk, caches,
  the reader of the events.
- Barriers at phase edges make a phase the same stretch of work on every rank, so they have no limit. They cost the
  time that ranks wait for each other and would otherwise catch up in a later phase.
- All of these are means without a fifth of the values at each end, with Yuen's interval.
- Rate in the record over rate by a stopwatch: stretches of {stretch} iterations with everything on are timed as a
  whole, with all that is between iterations, and compared with the sum of the iterations' own seconds.
- Forked and spawned ranks: processes of both kinds are alive at once and take turns, iteration by iteration, two of
  each in each of {groups} groups; each group has a process of its own that ranks are forked from. The figure is the
  mean over groups; how much two of a kind differ is the median over groups.
- On trlx and TRL: iterations of one trainer alternate with the suite's subclass and clock and without (every hook
  removed).
- Container's first event: three ways start in turns from the image `engines` with the CPU build of torch, timed to the
  time in the worker's first event: `suite run` from the start of the command, which the first run of a plan takes; a
  further run of a plan from the call of the launcher; `docker run`, which starts the worker alone. The median of the
  differences within each round.
- Rate in a container: the same manifest in that image and on the host, in turns; geometric means, Welch's interval.
- Medians stand between two of the values that hold them with 95 % (of five values: 94 %, all of them). Memory is the
  largest of all.
- Report, compare, list, site and export: synthetic bundles with records, of 216 manifests with one rank, two or four,
  in processes of their own on one core, their files in memory; compare has the same folder on both sides and reads
  each. Processor time with the system's, over {warm} runs with all kept that was derived and drawn before
  (docs/contracts.md), and of the report {cold} with nothing. One bundle more: the slope of the former.
"""


def main() -> None:
    """Run, print and write."""
    load, began = os.getloadavg()[0], time.monotonic()
    rows = []
    for benchmark in BENCHMARKS:
        for row in benchmark.rows():
            rows.append(row)
            print(f"{row.what}: {row.measured} (limit: {row.limit}, {row.verdict})", file=sys.stderr, flush=True)
    OUTPUT.write_text(page(rows, host_facts(), load, time.monotonic() - began), encoding="utf-8")
    print(f"wrote {OUTPUT.relative_to(Path.cwd()) if OUTPUT.is_relative_to(Path.cwd()) else OUTPUT}")


def page(rows: Sequence[Row], host: dict[str, Any], load: float, seconds: float) -> str:
    """The document."""
    return TEXT.format(
        when=date.today().isoformat(),
        commit=(git_commit() or "unknown")[:12],
        cpu=host["cpu"]["model"],
        cores=host["cpu"]["cores"] or host["cpu"]["threads"],
        python=platform.python_version(),
        minutes=seconds / 60,
        load=load,
        summary=summary(rows),
        rows="\n".join(f"| {' | '.join(row)} |" for row in rows),
        turns=overhead.TURNS,
        short_size=overhead.SHORT_SIZE,
        short_tokens=overhead.SHORT_WORK["new_tokens"],
        short_turns=overhead.SHORT_TURNS,
        stretch=control.ITERATIONS,
        warm=report_speed.WARM_TIMES,
        cold=report_speed.COLD_TIMES,
        groups=starting.GROUPS,
    )


def summary(rows: Sequence[Row]) -> str:
    """How many limits are met, and by name those that are not or of which nothing is known."""
    counts = Counter(row.verdict for row in rows)
    limited = len(rows) - counts["no limit"]
    lines = [f"**{counts['met']} of {limited} limits are met.**"]
    for verdict in ("not met", "cannot tell", "not measured"):
        names = [row.what for row in rows if row.verdict == verdict]
        if names:
            lines.append(f"{verdict.capitalize()}: {'; '.join(names)}.")
    return "\n\n".join(lines)


if __name__ == "__main__":
    main()
