"""Whether a study is what its bundles say: trials, budget, winners, and the rows that were measured again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.files import DamagedBundle
from suite.bundle.findings import Among, Finding
from suite.bundle.store import find_bundles
from suite.bundle.verify import Verification
from suite.bundle.walk import STUDY, TRIALS, find_studies
from suite.tune.answer import answered
from suite.tune.bundles import Reference, made
from suite.tune.knobs import choice_of
from suite.tune.search import REDUCTION
from suite.tune.space import work_of
from suite.tune.study import CONFIRMED, Confirmed, Study, Trial, best_of, read_study

_Found = Iterator[tuple[Among, str]]


@dataclass(frozen=True)
class StudyFile:
    """Where a study was found."""

    path: Path


def answers_below(folders: Sequence[Path]) -> tuple[list[Study], list[str]]:
    """Each study at and below the folders that has winners, with its answer, and a line for each that is left out
    because its bundles do not say what it says. Raises UsageError."""
    studies, left_out = [], []
    for folder in find_studies(folders):
        checked = verify_study(folder)
        if checked.status != "equal":
            first = [*(finding.line() for finding in checked.findings), *checked.differences][0]
            left_out.append(f"{folder / STUDY}: left out, {checked.status}: {first}")
        elif (study := read_study(folder)) is not None and study.winners:
            studies.append(answered(folder, study))
    return studies, left_out


def verify_studies(folders: Sequence[Path]) -> list[tuple[StudyFile, Verification]]:
    """Each study at and below the folders, with what does not fit. Raises UsageError."""
    return [(StudyFile(folder / STUDY), verify_study(folder)) for folder in find_studies(folders)]


def verify_study(folder: Path) -> Verification:
    """Never raises for what a folder holds."""
    try:
        study = read_study(folder)
        assert study is not None, "it was found there"
        found = tuple(Finding(name=name, text=text) for name, text in _findings(folder, study))
        if not found and study.answer is not None and study != answered(folder, study):
            found = (Finding(name="study-winner", text="its answer is another than that of its bundles"),)
    except DamagedBundle as error:
        return Verification(status="damaged", differences=(str(error),))
    return Verification(status="inconsistent" if found else "equal", differences=(), findings=found)


def _findings(folder: Path, study: Study) -> _Found:
    yield from _trials(folder, study)
    yield from _budgets(study)
    yield from _winners(study)
    for row in study.confirmed:
        yield from _confirmed(folder / CONFIRMED, study, row)


def _trials(folder: Path, study: Study) -> _Found:
    """Every trial has its bundle, every bundle its trial, and both say the same."""
    told, rungs = {trial.run for trial in study.trials}, study.question.rungs
    there = find_bundles([folder / TRIALS]) if (folder / TRIALS).is_dir() else []
    for bundle in there:
        if bundle.id not in told and not bundle.running() and study.winners:
            yield "study-trial", f"{TRIALS}/{bundle.id} is none of the trials of the study"
    if len(told) < len(study.trials) or max((trial.rung for trial in study.trials), default=0) >= len(rungs):
        yield "study-trial", "a run is there twice, or is of a rung that the study has not"
        return
    references: dict[str, Reference] = {}
    for trial in study.trials:
        run = made(folder / TRIALS, trial.run)
        if run is None:
            yield "study-trial", f"the bundle of {trial.run} is missing"
            continue
        own = study.of(trial.backend)[0].choice
        reference = references.setdefault(trial.backend, Reference(own))
        again = reference.trial(trial.backend, choice_of(run.manifest, own), trial.rung, run)
        for name in Trial.model_fields:
            stored, derived = getattr(trial, name), getattr(again, name)
            if stored != derived:
                yield "study-trial", f"{trial.run}: {name} is {stored!r}, its bundle says {derived!r}"
        if work_of(run.manifest) != study.question.work:
            yield "study-trial", f"{trial.run} did other work than the study's"
        if run.manifest.iterations != rungs[trial.rung]:
            yield "study-trial", f"{trial.run} has {run.manifest.iterations} iterations, not those of its rung"


def _budgets(study: Study) -> _Found:
    """Each backend could spend as much as the others."""
    for searched in study.question.searched:
        trials, budget = study.of(searched.backend), study.budget
        before = sum(trial.device_seconds for trial in trials[:-1])
        if before > budget:
            yield "study-budget", f"{searched.backend} had trials after its {budget:.6g} device-seconds were spent"
        stop = next((stop for stop in study.stops if stop.backend == searched.backend), None)
        if stop is None and study.winners:
            yield "study-budget", f"nothing says why {searched.backend} got no more trials"
        if stop is None or stop.why != "budget":
            continue
        left, dearest = budget - study.spent(searched.backend), max((one.device_seconds for one in trials), default=0.0)
        expected = stop.expected_seconds or 0.0
        if expected < left or expected > REDUCTION * dearest:
            yield (
                "study-budget",
                f"{searched.backend} has {left:.6g} device-seconds of its budget left, and its next trial was expected "
                f"to take {expected:.6g}, after trials of at most {dearest:.6g}",
            )


def _winners(study: Study) -> _Found:
    told = {winner.backend: winner for winner in study.winners}
    searched = [each.backend for each in study.question.searched]
    for backend in dict.fromkeys((*searched, *told)) if study.winners else ():
        best, winner = best_of(study.of(backend)), told.get(backend)
        if (best and best.run) != (winner and winner.run) or (best and winner and best.choice != winner.choice):
            name = winner.run if winner else "nobody"
            yield "study-winner", f"{name} wins of {backend}, its trials say {best.run if best else 'nobody'}"


def _confirmed(folder: Path, study: Study, row: Confirmed) -> _Found:
    """A row that was measured again is the one that the trials name, and its runs are there."""
    trials = study.of(row.backend)
    winner = next((one.choice for one in study.winners if one.backend == row.backend), {})
    own = trials[0].choice if trials else {}
    wanted = own if row.row == "equal-config" else dict(winner)
    if row.without is not None:
        wanted[row.without] = own.get(row.without, "")
    beside = [one.row for one in study.confirmed if one.backend == row.backend]
    if row.choice != wanted or row.without not in (None, *winner) or (row.without and "tuned" not in beside):
        yield "study-winner", f"the {row.row} row of {row.backend} is another than its trials say"
    for run in row.runs:
        found = made(folder, run)
        if found is None:
            yield "study-winner", f"run {run} of the {row.row} row of {row.backend} is missing"
        elif choice_of(found.manifest, own) != row.choice or work_of(found.manifest) != study.question.work:
            yield "study-winner", f"run {run} is not of the {row.row} row of {row.backend}, or did other work"
