"""A simulated iteration as a trace that Perfetto and Chrome show.

The format is Chrome's trace events (document "Trace Event Format"): complete events (`X`) with microseconds, a process
for each side and a thread for each lane.
"""

from __future__ import annotations

from typing import Any

from suite.planner.simulate.iteration import Simulated

_SIDES = ("training", "generation")


def trace_of(simulated: Simulated) -> dict[str, Any]:
    """The trace as JSON."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": side, "tid": 0, "args": {"name": _SIDES[side]}}
        for side in sorted({side for _, side in simulated.lanes})
    ]
    events += [
        {"name": "thread_name", "ph": "M", "pid": side, "tid": lane, "args": {"name": name}}
        for lane, (name, side) in enumerate(simulated.lanes)
    ]
    for task, began, ended in simulated.spans:
        if ended <= began:
            continue
        for lane in task.lanes:
            events.append(
                {
                    "name": task.name,
                    "cat": task.cause,
                    "ph": "X",
                    "ts": round(1e6 * began, 3),
                    "dur": round(1e6 * (ended - began), 3),
                    "pid": simulated.lanes[lane][1],
                    "tid": lane,
                }
            )
    return {"displayTimeUnit": "ms", "otherData": {"seconds": simulated.seconds}, "traceEvents": events}
