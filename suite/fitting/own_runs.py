"""`python -m suite.fitting.own_runs FOLDER`: constants of runs on CPU cores, learnt from few and checked on the rest.

Small runs on one rank teach, whatever is larger or has more ranks is predicted, as somebody learns from small runs
before a large one. With ``--before FOLDER`` runs of another machine have taught before them. Prints the tables of
docs/arrangements.md; ``--out`` writes the constants, learnt from all.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import median

import numpy as np

from suite.bundle.derive import record_of
from suite.bundle.record import Record
from suite.bundle.store import DamagedBundle, find_bundles
from suite.fitting.bayes import FOUR_FIFTHS, Known, Vector, updated
from suite.planner.own_machine import (
    BACKEND_SPREAD,
    PHASES,
    PRIORS,
    Learnt,
    Machine,
    as_json,
    machine_of,
    phase_seconds,
)
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.terminal import say
from suite.theory.parameters import parameter_count

#: What the constants cannot explain of a phase, relative: the machine's own unrest, and physics that is left out.
NOISE = 0.08
#: How far constants of another machine lie from those that were learnt on one, in spreads of what is thought before
#: any run: as far as ``suite.planner.learnt`` has a device's constants drift.
DRIFT = 0.5
#: Median of the errors that predictions from small runs are asked to have.
BAR = 0.10


@dataclass(frozen=True)
class Configuration:
    """Repeats of one manifest: the median seconds of its phases, and the machine in the middle of those measured."""

    manifest: Manifest
    machine: Machine
    seconds: dict[str, float]
    runs: int

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def name(self) -> str:
        manifest = self.manifest
        return f"{manifest.backend.name} {manifest.size.name} on {manifest.layout.ranks}"


def configurations(folders: Iterable[Path]) -> list[Configuration]:
    """What finished runs on CPU cores there are, by manifest. UsageError where there are none."""
    found: dict[str, list[tuple[Manifest, Record, Machine]]] = defaultdict(list)
    for bundle in find_bundles(folders):
        try:
            manifest, record = bundle.manifest(), record_of(bundle)
        except DamagedBundle:
            continue
        machine = machine_of(record)
        if record.status == "ok" and manifest.measure.device == "cpu" and machine is not None and record.phases:
            found[manifest.hash].append((manifest, record, machine))
    if not found:
        raise UsageError("there is no finished run on a CPU to learn from")
    return sorted((_pooled(runs) for runs in found.values()), key=lambda one: (one.manifest.backend.name, one.name))


def _pooled(runs: Sequence[tuple[Manifest, Record, Machine]]) -> Configuration:
    manifest = runs[0][0]
    machines = [machine for _, _, machine in runs]
    each: dict[str, list[float]] = defaultdict(list)
    for _, record, _ in runs:
        assert record.phases is not None, "chosen above"
        for name, phase in record.phases.model_dump().items():
            if name in PHASES and phase and phase.get("seconds"):
                each[name].append(float(phase["seconds"]))
    middle = Machine(*(median(getattr(one, name) for one in machines) for name in ("flops", "copy", "latency", "bus")))
    return Configuration(manifest, middle, {name: median(found) for name, found in each.items()}, len(runs))


class Constants:
    """The constants as one vector of logarithms: those of ``PRIORS``, then every backend's factor on a phase."""

    def __init__(self, backends: Iterable[str]) -> None:
        self.effects = [f"{backend}|{phase}" for backend in sorted(set(backends)) for phase in PHASES]

    def before(self) -> Known:
        """What is thought before any run."""
        centres = [*(centre for centre, _, _ in PRIORS.values()), *(1.0 for _ in self.effects)]
        return Known.before(centres, self._spreads())

    def elsewhere(self, others: Sequence[Configuration]) -> Known:
        """What is thought before any run of a machine after ``others``, which ran on another."""
        learnt = learn(self, self.before(), others)
        drift = DRIFT * np.array(self._spreads())
        return Known(learnt.mean, learnt.covariance + np.diag(drift**2))

    def _spreads(self) -> list[float]:
        return [*(spread for _, spread, _ in PRIORS.values()), *(BACKEND_SPREAD for _ in self.effects)]

    def named(self, vector: Vector) -> tuple[dict[str, float], dict[str, float]]:
        """Values, and effects."""
        own = len(PRIORS)
        values = {name: exp(value) for name, value in zip(PRIORS, vector[:own].tolist(), strict=True)}
        return values, dict(zip(self.effects, vector[own:].tolist(), strict=True))

    def phases(self, some: Sequence[Configuration]) -> Callable[[Vector], Vector]:
        """Logarithms of the seconds of all phases of ``some``."""

        def model(vector: Vector) -> Vector:
            named = self.named(vector)
            every = [(one, phase_seconds(one.manifest, one.machine, *named)) for one in some]
            return np.log([found[phase] for one, found in every for phase in one.seconds])

        return model

    def totals(self, some: Sequence[Configuration]) -> Callable[[Vector], Vector]:
        """Logarithms of the seconds of whole iterations."""

        def model(vector: Vector) -> Vector:
            named = self.named(vector)
            return np.log([sum(phase_seconds(one.manifest, one.machine, *named).values()) for one in some])

        return model


def learn(constants: Constants, known: Known, some: Sequence[Configuration]) -> Known:
    """What is known after these runs."""
    measured = np.log([seconds for one in some for seconds in one.seconds.values()])
    return updated(known, constants.phases(some), measured, NOISE)


def small_ones(every: Sequence[Configuration]) -> list[Configuration]:
    """Of every backend and architecture all sizes on one rank but the largest, where there are several."""
    of_kind: dict[tuple[str, str], list[Configuration]] = defaultdict(list)
    for one in on_one_rank(every):
        of_kind[one.manifest.backend.name, one.manifest.size.architecture].append(one)
    sized = (sorted(found, key=_parameters) for found in of_kind.values())
    return [one for found in sized for one in (found[:-1] or found)]


def on_one_rank(every: Sequence[Configuration]) -> list[Configuration]:
    """All that ran on one rank."""
    return [one for one in every if one.manifest.layout.ranks == 1]


def _parameters(one: Configuration) -> int:
    return parameter_count(one.manifest.size).total


@dataclass(frozen=True)
class Checked:
    """One configuration beside its predictions, with 80 % bands as factors."""

    one: Configuration
    taught: bool
    before: float
    after: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.one.total <= self.high


def experiment(
    every: Sequence[Configuration], taught: Sequence[Configuration], others: Sequence[Configuration] = ()
) -> list[Checked]:
    """All configurations as predicted before any run of their machine, and after those that teach."""
    constants = Constants(one.manifest.backend.name for one in (*every, *others))
    before = constants.elsewhere(others) if others else constants.before()
    after = learn(constants, before, taught)
    model = constants.totals(every)
    deviations = after.deviation(model, NOISE)
    rows = []
    for one, first, then, deviation in zip(every, model(before.mean), model(after.mean), deviations, strict=True):
        low, high = (exp(then + side * FOUR_FIFTHS * deviation) for side in (-1, 1))
        rows.append(Checked(one, one in taught, exp(first), exp(then), low, high))
    return rows


def left_out(every: Sequence[Configuration], others: Sequence[Configuration] = ()) -> list[Checked]:
    """Every configuration as predicted from all others."""
    found = (experiment(every, [other for other in every if other is not one], others) for one in every)
    return [next(row for row in rows if not row.taught) for rows in found]


def table(rows: Sequence[Checked]) -> list[str]:
    """The rows in Markdown, milliseconds an iteration."""
    lines = ["| configuration | runs | measured ms | before | after | 80 % band |", "|---|---|---|---|---|---|"]
    for row in rows:
        name = f"{row.one.name}{' (taught)' if row.taught else ''}"
        lines.append(
            f"| {name} | {row.one.runs} | {1e3 * row.one.total:.1f} | {1e3 * row.before:.1f} | {1e3 * row.after:.1f} | "
            f"{1e3 * row.low:.1f} to {1e3 * row.high:.1f} |"
        )
    return lines


def errors(rows: Sequence[Checked]) -> str:
    """The errors of those that did not teach, and how many lie in their bands."""
    kept = [row for row in rows if not row.taught]
    before, after = ([abs(getattr(row, name) / row.one.total - 1) for row in kept] for name in ("before", "after"))
    inside = sum(row.inside for row in kept)
    answer = "reached" if median(after) <= BAR else "missed"
    return (
        f"Absolute relative error on the {len(kept)} others: before {_shown(before)}; after {_shown(after)} (median of "
        f"{100 * BAR:.0f} % asked: {answer}). {inside} lie in their 80 % band."
    )


def _shown(found: Sequence[float]) -> str:
    return f"median {100 * median(found):.1f} %, largest {100 * max(found):.1f} %"


def shipped(every: Sequence[Configuration], where: str) -> Learnt:
    """Constants learnt from all configurations, with the band that held four fifths of those left out in turn."""
    constants = Constants(one.manifest.backend.name for one in every)
    values, effects = constants.named(learn(constants, constants.before(), every).mean)
    off = np.log([row.one.total / row.after for row in left_out(every)])
    width = float(np.quantile(np.abs(off), 0.8))
    body = {"schema": "suite/planner-cpu/1", "values": values, "effects": effects, "learnt_from": where}
    return Learnt.model_validate(body | {"low": exp(-width), "high": exp(width), "configurations": len(every)})


def tables(every: Sequence[Configuration], others: Sequence[Configuration] = ()) -> list[str]:
    """Every experiment with its errors, in Markdown."""
    lines: list[str] = []
    for title, rows in (
        (
            "All sizes but the largest of each backend and architecture teach, on one rank:",
            experiment(every, small_ones(every), others),
        ),
        ("All that ran on one rank teach:", experiment(every, on_one_rank(every), others)),
        ("Each is predicted from all others:", left_out(every, others)),
    ):
        lines += [title, "", *table(rows), "", errors(rows), ""]
    return lines[:-1]


def main() -> int:
    """Learn, check, print; write the constants where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="results folders")
    parser.add_argument("--before", type=Path, nargs="+", default=[], help="results folders of another machine")
    parser.add_argument("--out", type=Path, help="constants file to write")
    parser.add_argument("--where", default="", help="what the constants were learnt from, in words")
    asked = parser.parse_args()
    every = configurations(asked.folders)
    others = configurations(asked.before) if asked.before else []
    for line in tables(every, others):
        say(line)
    if asked.out is not None:
        asked.out.write_text(as_json(shipped(every, asked.where)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
