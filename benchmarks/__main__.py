"""Run every benchmark of the suite itself and write docs/self-benchmarks.md."""

from __future__ import annotations

import platform
import sys
from datetime import date
from pathlib import Path

from benchmarks import containers, control, overhead, planner_speed, report_speed, startup
from suite.conduct.running.provenance import git_commit
from suite.launch.probe import host_facts

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "self-benchmarks.md"

TEXT = """# What the suite itself costs

Written by `make bench-self`; run it on your own machine. {when}, commit {commit}.
{cpu}, {cores} cores, Python {python}.

| what | measured | limit |
|---|---|---|
{rows}

- Clock, probes and events: the iterations of one process take turns with everything on, with only the barriers at phase
  edges, and, on several ranks, bare. Each is timed from outside, barrier to barrier, with the writing of its events.
  The figure is how much longer an iteration takes with everything on than with the barriers alone: the mean of the log
  ratios, trimmed by a fifth at each end, with Yuen's 95 % interval.
- Barriers at phase edges make a phase the same stretch of work on every rank, so they have no limit. They cost the
  time that ranks wait for each other and would otherwise catch up in a later phase. Two ranks on the cores of a shared
  machine disturb each other more than devices do.
- Record over bare loop: the rate in the record divided by samples over elapsed time of the same engine loop in a plain
  script (`benchmarks/loop_worker.py`). Both take turns, each in fresh processes; geometric means, Welch's interval.
- Container's first event: both ways start in turns from the image `engines` with the CPU build of torch, timed from
  the start of the command to the time in the worker's first event; `docker run` starts the worker alone. The figure is
  the difference within each pair.
- Rate in a container: the same manifest in that image and on the host, in turns; geometric means, Welch's interval.
- Report: synthetic bundles with records, in a process of its own.
"""


def main() -> None:
    """Run, print and write."""
    host = host_facts()
    lines = []
    for benchmark in (startup, report_speed, planner_speed, overhead, control, containers):
        for what, figure, limit in benchmark.rows():
            lines.append(f"| {what} | {figure} | {limit} |")
            print(f"{what}: {figure} (limit: {limit})", file=sys.stderr, flush=True)
    text = TEXT.format(
        when=date.today().isoformat(),
        commit=(git_commit() or "unknown")[:12],
        cpu=host["cpu"]["model"],
        cores=host["cpu"]["cores"],
        python=platform.python_version(),
        rows="\n".join(lines),
    )
    OUTPUT.write_text(text, encoding="utf-8")
    print(f"wrote {OUTPUT.relative_to(Path.cwd()) if OUTPUT.is_relative_to(Path.cwd()) else OUTPUT}")


main()
