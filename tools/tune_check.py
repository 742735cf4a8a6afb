"""`make tune-check`: the search of `suite tune` replayed on sweeps that were measured, against a grid and any order.

A sweep is rows of one work that differ in their layout, each with the rate that was measured. The search learns a row's
rate by running it, as in a study: 2 iterations, then 6 and 18 while it is among the best third. A grid, and rows in any
order, run each with all of them. What counts is what was run until a row within 3 % of the sweep's best had run.
"""

import argparse
import math
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from suite.bundle.archive.opening import opened
from suite.bundle.walk import TRIALS
from suite.tune.bundles import made
from suite.tune.check import find_studies
from suite.tune.knobs import Value
from suite.tune.search import FROM_PLANNER, Searcher
from suite.tune.study import read_study
from tools.planner.entries import Entry
from tools.planner.rows import Published, read
from tools.planner.step_fit import Fitted, Rows, fit

#: Counted iterations of a trial's runs, and those before them, as `suite tune` has them where nobody says.
RUNGS, WARMUP = (2, 6, 18), 2
NEAR = 0.97
#: The search is asked to be so many times cheaper than a grid.
ASKED = 3.0
#: Of fewer rows there is nothing to search.
FEWEST_ROWS = 4
SEEDS, SHUFFLES = range(20), 200
#: Properties of a published job that are its layout; with the batch all others are its work.
LAYOUT = (
    *("tensor", "pipeline", "chunks", "context", "zero_stage", "sequence_parallel"),
    *("recompute", "offload_optimizer", "micro_batch"),
)


class Row(NamedTuple):
    """``rate``: samples/s; ``seconds``: device-seconds of a run of each rung."""

    choice: dict[str, Value]
    rate: float
    seconds: tuple[float, ...]


class Spent(NamedTuple):
    """Until a row near the best had run: rows that were begun, and device-seconds."""

    rows: float
    seconds: float


@dataclass(frozen=True)
class Sweep:
    """``rows`` in the order of a grid. ``planned``: their places, expected fastest first; empty where the planner knows
    nothing. ``own``: places of rows that may be the stack's own, with which a search begins."""

    name: str
    rows: tuple[Row, ...]
    planned: tuple[int, ...]
    own: tuple[int, ...]

    @property
    def best(self) -> int:
        return max(range(len(self.rows)), key=lambda place: self.rows[place].rate)

    def is_near(self, row: Row) -> bool:
        return row.rate >= NEAR * self.rows[self.best].rate


def published_sweeps(published: Published) -> Iterator[Sweep]:
    """All works of which at least two layouts were published, by one source, stack and release."""
    alike: dict[tuple[object, ...], dict[tuple[float, ...], list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in published.timed:
        alike[_work(entry)][_layout(entry)].append(entry)
    fits: dict[str, Fitted] = {}
    for layouts in alike.values():
        if len(layouts) > 1:
            entries = [layouts[layout] for layout in sorted(layouts)]
            source = entries[0][0].source
            if source not in fits:
                fits[source] = fit(Rows.of(published.without(source).timed))
            yield _sweep(entries, fits[source])


def _sweep(entries: Sequence[Sequence[Entry]], fitted: Fitted) -> Sweep:
    """``entries``: of each layout; ``fitted``: without their source."""
    firsts = [same[0] for same in entries]
    rows = [_row(same) for same in entries]
    batches = [job["global_batch"] for first in firsts if (job := first.job)]
    rates = [batch / step for batch, step in zip(batches, fitted.predict(Rows.of(firsts)).tolist(), strict=True)]
    planned = sorted(range(len(rows)), key=lambda place: -rates[place])
    cells = firsts[0].cells
    where = f"{cells['n_gpus']} {cells['gpu_model']}"
    name = f"{firsts[0].source}: {firsts[0].model}, sequences of {cells['seq_len']}, {where}"
    return Sweep(name, tuple(rows), tuple(planned), tuple(range(len(rows))))


def _row(same: Sequence[Entry]) -> Row:
    """Of the runs of one layout, by their geometric mean. What starting took is not published."""
    job = same[0].job or {}
    step = math.exp(fmean(math.log(entry.step_seconds or math.nan) for entry in same))
    seconds = tuple(job["devices"] * (WARMUP + count) * step for count in RUNGS)
    return Row({name: int(job[name]) for name in LAYOUT}, job["global_batch"] / step, seconds)


def _layout(entry: Entry) -> tuple[float, ...]:
    job = entry.job or {}
    return tuple(float(job[name]) for name in LAYOUT)


def _work(entry: Entry) -> tuple[object, ...]:
    """Equal of rows that may be compared. A source that takes one step on a micro batch of each device sweeps the batch
    with it, and its rates are compared per sample."""
    job = entry.job or {}
    steps = job["global_batch"] * job["tensor"] * job["pipeline"] * job["context"] / job["devices"] / job["micro_batch"]
    rest = sorted((name, float(value)) for name, value in job.items() if name not in (*LAYOUT, "global_batch"))
    batch = None if steps == 1 else job["global_batch"]
    return entry.source, entry.model, entry.cells.get("task", ""), *sorted(entry.groups.items()), batch, *rest


def study_sweeps(path: Path) -> Iterator[Sweep]:
    """The rows that a study tried, of each backend, with what their trials took, start-up in."""
    with opened([path]) as places:
        for folder in find_studies(places.folders):
            study = read_study(folder)
            assert study is not None, "it was found there"
            for searched in study.question.searched:
                trials = [one for one in study.of(searched.backend) if one.rung == 0 and one.outcome == "ok"]
                first = made(folder / TRIALS, trials[0].run)
                assert first is not None, "suite verify looks for it"
                device_seconds = study.question.ranks * first.manifest.work.global_rollouts
                rows = [
                    Row(
                        one.choice,
                        one.rate,
                        tuple(one.device_seconds + (count - RUNGS[0]) * device_seconds / one.rate for count in RUNGS),
                    )
                    for one in sorted(trials, key=lambda one: tuple(one.choice.values()))
                    if one.rate
                ]
                name = f"{searched.backend}, {study.question.size} on {study.question.ranks} ranks"
                own = [place for place, row in enumerate(rows) if row.choice == study.of(searched.backend)[0].choice]
                yield Sweep(name, tuple(rows), (), tuple(own))


def searched(sweep: Sweep, own: int, seed: int) -> Spent:
    """By the search of a study that begins with the row ``own``."""
    order = [own, *(place for place in range(len(sweep.rows)) if place != own)]
    choices = [sweep.rows[place].choice for place in order]
    knobs = {name: tuple(dict.fromkeys(choice[name] for choice in choices)) for name in choices[0]}
    settings = {tuple(choice.values()): index for index, choice in enumerate(choices)}
    searcher = Searcher(knobs, settings, RUNGS, seed)
    begun, spent = 0, 0.0
    while (step := searcher.next()) is not None:
        row = sweep.rows[order[step.candidate]]
        begun += step.rung == 0
        spent += row.seconds[step.rung]
        if sweep.is_near(row):
            break
        searcher.tell(row.rate)
        if step == (0, 0):
            searcher.suggest([order.index(place) for place in sweep.planned if place != own][:FROM_PLANNER])
    return Spent(begun, spent)


def in_order(sweep: Sweep, order: Iterable[int]) -> Spent:
    """By running rows in this order, each with all iterations."""
    begun, spent = 0, 0.0
    for place in order:
        begun += 1
        spent += sweep.rows[place].seconds[-1]
        if sweep.is_near(sweep.rows[place]):
            break
    return Spent(begun, spent)


class Replay(NamedTuple):
    """Means: of searches from each own row and seed, of a grid from both of its ends, of rows in any order."""

    sweep: Sweep
    search: Spent
    grid: Spent
    any_order: Spent

    @property
    def gain(self) -> float:
        """How many times cheaper than a grid the search is, in device-seconds."""
        return self.grid.seconds / self.search.seconds


def replay(sweep: Sweep) -> Replay:
    """One sweep; the same figures at each call."""
    places, drawn = range(len(sweep.rows)), random.Random(0)
    return Replay(
        sweep,
        _mean([searched(sweep, own, seed) for own in sweep.own for seed in SEEDS]),
        _mean([in_order(sweep, places), in_order(sweep, reversed(places))]),
        _mean([in_order(sweep, drawn.sample(places, len(places))) for _ in range(SHUFFLES)]),
    )


def _mean(spent: Sequence[Spent]) -> Spent:
    return Spent(fmean(one.rows for one in spent), fmean(one.seconds for one in spent))


def named_early(sweeps: Sequence[Sweep]) -> list[str]:
    """How early the planner, fitted without their source, names the winner of sweeps, by how many layouts they have."""
    by_count: dict[int, list[int]] = defaultdict(list)
    for sweep in sweeps:
        by_count[len(sweep.rows)].append(1 + sweep.planned.index(sweep.best))
    lines = [
        "| layouts | sweeps | winner named first | among the first three | mean place | by chance |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for count, found in sorted(by_count.items()):
        first, early = (sum(place <= most for place in found) for most in (1, FROM_PLANNER))
        lines.append(f"| {count} | {len(found)} | {first} | {early} | {fmean(found):.2g} | {(count + 1) / 2:.2g} |")
    return lines


def replayed(replays: Sequence[Replay]) -> list[str]:
    """A table of sweeps."""
    lines = [
        "| sweep | rows | within 3 % | search: rows | device-s | grid: rows | device-s | any order: rows | device-s "
        "| grid / search | planner's place of the winner |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in replays:
        sweep = one.sweep
        near = sum(map(sweep.is_near, sweep.rows))
        spent = " | ".join(f"{each.rows:.3g} | {each.seconds:,.0f}" for each in (one.search, one.grid, one.any_order))
        place = 1 + sweep.planned.index(sweep.best) if sweep.planned else "-"
        lines.append(f"| {sweep.name} | {len(sweep.rows)} | {near} | {spent} | {one.gain:.2f} | {place} |")
    return lines


def _reached(replays: Sequence[Replay]) -> str:
    gain = math.exp(fmean(math.log(one.gain) for one in replays))
    rows = math.exp(fmean(math.log(one.grid.rows / one.search.rows) for one in replays))
    cheap = sum(one.gain >= ASKED for one in replays)
    return (
        f"A search takes {gain:.2f} times less than a grid in the geometric mean, and begins {rows:.2f} times fewer "
        f"rows; {ASKED:g} times less was asked, which {cheap} of {len(replays)} reach."
    )


def page_of(published: Sequence[Sweep], tried: Sequence[Sweep]) -> str:
    """Markdown."""
    large = [replay(sweep) for sweep in published if len(sweep.rows) >= FEWEST_ROWS]
    own = [replay(sweep) for sweep in tried]
    parts = [
        "# The search of suite tune, replayed",
        f"Made by `make tune-check` (`tools/tune_check.py`). {' '.join((__doc__ or '').split(chr(10) * 2)[1].split())}",
        "Figures are means: of searches from each row as the stack's own and twenty seeds, of a grid begun at either "
        "end, of two hundred orders.",
        "## Published sweeps",
        f"Of each published work with at least {FEWEST_ROWS} layouts. What starting took is not published, so that "
        "device-seconds are those of iterations alone: of a start that takes longer than its iterations, rows count. "
        "The planner was fitted without the source. `docs/published` has no larger sweep than these, which turn one "
        "knob, the micro batch, with the batch; of so few rows a grid comes to the best soon, and no "
        "order is much cheaper.",
        "\n".join(replayed(large)),
        _reached(large),
        "## Rows that a study of this suite tried",
        "Of [a study](README.md#tuned) on a CPU, of which the planner knows nothing; device-seconds are those of its "
        "trials, start-up in. The rest of its space was not measured: rows that the search asks for there count "
        "nothing, and after ten of them one is drawn.",
        "\n".join(replayed(own)),
        _reached(own),
        "## How early the planner names the winner",
        "`suite plan` shows layouts fastest first, and `suite tune` tries its first three next after a stack's own. Of "
        "all published works with at least two layouts, the planner fitted without their source:",
        "\n".join(named_early(published)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("published", type=Path, nargs="+", help="folders of CSV files in the published format")
    parser.add_argument("--study", type=Path, action="append", default=[], help="results folder or archive of a study")
    parser.add_argument("--write", type=Path, help="file of the page")
    asked = parser.parse_args()
    tried = [sweep for path in asked.study for sweep in study_sweeps(path)]
    page = page_of([*published_sweeps(read(asked.published))], tried)
    if asked.write is None:
        print(page)
    else:
        asked.write.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
