"""What a dry run shows: every run of a plan, and what is expected of each configuration."""

from collections import Counter
from collections.abc import Iterator, Sequence

from suite.conduct.planning.plan import Plan
from suite.conduct.planning.preflight import Preflight
from suite.conduct.planning.request import RunState
from suite.report.formatting.numbers import GIB, counted, gib, number, span
from suite.spec.grid import Column, grid_lines
from suite.spec.manifest import Manifest
from suite.spec.terminal import say, say_lines
from suite.spec.width import terminal_columns, wrapped


def plan_rows(runs: Sequence[tuple[Manifest, RunState]], found: Preflight) -> list[dict]:
    """The plan as data, in running order, each run with what is expected of it."""
    rows = {row.run: row for row in found.rows}
    return [
        {
            "run": manifest.run.id,
            "backend": manifest.backend.label,
            "size": manifest.size.name,
            "ranks": manifest.layout.ranks,
            "layout": manifest.layout.label(),
            "scaling": manifest.workload.scaling,
            "samples": manifest.work.global_rollouts,
            "repeat": manifest.run.repeat,
            "state": state,
            **rows[manifest.run.id].model_dump(exclude={"run"}),
        }
        for manifest, state in runs
    ]


#: what a narrow terminal leaves out of the plan, the highest first: a run's id holds all but the scaling
_RANKS = {"repeat": 5, "ranks": 4, "size": 3, "backend": 2}
_FIGURES = ("ranks", "samples", "repeat")


def print_plan(plan: Plan, rows: Sequence[dict], found: Preflight) -> None:
    """Every run in order, what cannot be run, and what is expected; ``found``: of the runs still to be done."""
    ranks = {**_RANKS, "scaling": 1 if len({row["scaling"] for row in rows}) == 1 else 0}
    names = ("run", "backend", "size", "ranks", "layout", "scaling", "samples", "repeat", "state")
    cells = {name: [str(row[name]) for row in rows] for name in names}
    columns = [
        Column(name, cells[name], ranks.get(name, 0), name not in _FIGURES, name in ("run", "state")) for name in names
    ]
    say(f"plan {plan.id}: {counted(len(rows), 'run')}")
    say_lines(grid_lines(columns, terminal_columns()))
    lines = [f"not possible: {one.backend} {one.size} on {one.ranks} ranks: {one.reason}" for one in plan.skipped]
    for line in (*lines, *(f"note: {note}" for note in plan.notes)):
        say_lines(wrapped(line, terminal_columns(), rest="  "))
    say_lines(_expectations(rows, found))
    counts = Counter(row["state"] for row in rows)
    say(", ".join(f"{count} {state}" for state, count in sorted(counts.items())) + "; nothing was run")


def _expectations(rows: Sequence[dict], found: Preflight) -> Iterator[str]:
    """What each configuration should need, one line for all its repeats, and the whole plan."""
    width = terminal_columns()
    alike: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["expected"]:
            configuration = tuple(row[name] for name in ("backend", "size", "ranks", "layout", "limit_seconds"))
            alike.setdefault(configuration, []).append(row)
    if alike:
        firsts = [(each[0], each[0]["expected"], len(each)) for each in alike.values()]
        names = [f"{row['backend']} {row['size']} {row['layout']}" for row, _, _ in firsts]
        costs = [number(expected["cost"], 2) for _, expected, _ in firsts]
        columns = [
            Column("expected of each run", names, left=True),
            Column("runs", [str(count) for _, _, count in firsts], rank=3),
            Column("iterations", [str(row["iterations"]) for row, _, _ in firsts], rank=2),
            Column("GiB", [_of_memory(expected) for _, expected, _ in firsts]),
            Column("s/iter", [number(expected["iteration_seconds"], 2) for _, expected, _ in firsts]),
            Column("time", [_of_limit(row) for row, _, _ in firsts]),
            Column("limit", [span(row["limit_seconds"]) for row, _, _ in firsts]),
            Column("GPU-h", [number(expected["gpu_hours"], 2) for _, expected, _ in firsts]),
            *([Column("cost", costs)] if found.price is not None else []),
        ]
        yield ""
        yield from grid_lines(columns, width)
        yield ""
    for line in found.summary():
        yield from wrapped(line, width, rest="  ")


def _of_memory(expected: dict) -> str:
    mark = " tight" if expected["tight"] else "" if expected["fits"] else " !"
    return f"{gib(expected['memory_bytes'])} of {expected['capacity_bytes'] / GIB:.0f}{mark}"


def _of_limit(row: dict) -> str:
    seconds: float = row["expected"]["run_seconds"]
    return span(seconds) + (" !" if seconds > row["limit_seconds"] else "")
