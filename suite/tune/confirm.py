"""The winners measured again: in fresh runs, in turns with each other and with the equal-config rows."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from suite.conduct.planning.plan import Plan
from suite.conduct.planning.turns import Point, Turning, take_seats
from suite.conduct.running.at_once import in_turns
from suite.conduct.running.session import Settings, Summary, View, run_plan
from suite.launch.outcome import Launcher
from suite.spec.base import Track
from suite.spec.manifest import Manifest
from suite.spec.resolve import as_repeat
from suite.tune.knobs import Value, changed
from suite.tune.space import Rows, Space
from suite.tune.study import Confirmed, Study, Trial

#: Knobs that are taken back, one at a time.
TAKEN_BACK = 3


class Confirmation:
    """The rows of a study that are measured again, in starts: first all defaults and winners together, then each winner
    with its rows of one knob taken back."""

    def __init__(self, study: Study, spaces: Sequence[Space], rows: Rows, turning: Turning) -> None:
        self._study, self._rows, self._turning = study, rows, turning.model_copy(update={"mixed": True})
        self.notes: tuple[str, ...] = ()
        self._manifests: list[Manifest] = []
        self._starts: dict[str, tuple[int, int]] = {}
        self.confirmed = self._planned({space.backend: space for space in spaces})

    def _planned(self, spaces: Mapping[str, Space]) -> tuple[Confirmed, ...]:
        together, without = [], []
        for winner in self._study.winners:
            space = spaces[winner.backend]
            turned = changed(winner.choice, space.default.choice)
            together.append(self._row(winner.backend, "equal-config", space.default.choice))
            if not turned:
                continue
            tuned = self._row(winner.backend, "tuned", winner.choice)
            together.append(tuned)
            back = []
            for name in gave_most(self._study.of(winner.backend), turned, space.default.choice)[:TAKEN_BACK]:
                choice = {**winner.choice, name: space.default.choice[name]}
                if len(turned) > 1 and space.find(choice) is not None:
                    back.append(self._row(winner.backend, "without", choice, name))
            if back:
                without.append([tuned, *back])
        groups = enumerate([together, *without])
        return tuple(row for group, members in groups for row in self._started(group, members))

    def _row(self, backend: str, row: str, choice: Mapping[str, Value], without: str | None = None) -> Confirmed:
        body = {"backend": backend, "row": row, "without": without, "choice": dict(choice), "runs": ()}
        return Confirmed.model_validate(body)

    def _started(self, group: int, members: Sequence[Confirmed]) -> list[Confirmed]:
        """Plan the starts of a group; its rows with their runs."""
        starts = self._study.question.starts
        firsts = [self._manifest(member, "iterations") for member in members]
        reason = self._alone(firsts)
        if reason is not None:
            if len(members) > 1:  # one row alone is in no comparison that would be worse for it
                self.notes += (f"rounds, not turns by iteration: {reason}",)
            firsts = [self._manifest(member, "rounds") for member in members]
        runs: dict[int, list[str]] = {id(member): [] for member in members}
        for start in range(starts):
            order = list(zip(members, firsts, strict=True))
            for member, first in order if start % 2 == 0 else reversed(order):
                # of a row that is in two groups the later repeats are of the second
                repeat = start + 1 + (starts if group and member.row == "tuned" else 0)
                manifest = as_repeat(first, repeat)
                self._manifests.append(manifest)
                if reason is None:
                    self._starts[manifest.run.id] = group, start
                runs[id(member)].append(manifest.run.id)
        return [member.model_copy(update={"runs": tuple(runs[id(member)])}) for member in members]

    def _manifest(self, member: Confirmed, turns: str) -> Manifest:
        track: Track = "equal-config" if member.row == "equal-config" else "tuned"
        iterations = self._study.question.iterations
        return self._rows.manifest(member.backend, member.choice, track, iterations=iterations, turns=turns)

    def _alone(self, firsts: Sequence[Manifest]) -> str | None:
        """Why these rows cannot take turns by iteration, all at once; null where they can."""
        if len(firsts) == 1:
            return "there is nothing beside it"
        parts = ("size", "workload", "layout", "measure", "limits")
        points = [
            Point(backend=first.backend.label, **{part: getattr(first, part) for part in parts}) for first in firsts
        ]
        seated, _, in_rounds = take_seats(points, self._turning, False)
        if in_rounds:
            return in_rounds[0]
        several = any(point.seat and point.seat.blocks > 1 for point in seated)
        return "there is no room for all of them at once" if several else None

    def run(self, settings: Settings, launcher: Launcher, view: View) -> Summary:
        """Make the runs that are not there yet."""
        plan = Plan(id=self._study.question.digest[:12], manifests=tuple(self._manifests))
        way = partial(in_turns, group=lambda manifest: self._starts.get(manifest.run.id))
        return run_plan(plan, settings, launcher, view, way)


def gave_most(trials: Sequence[Trial], turned: Mapping[str, Value], default: Mapping[str, Value]) -> list[str]:
    """The knobs that were turned, by how much faster trials of their new value were than those of the default's: in
    their first rung, by the mean of logarithms; those of which the trials say nothing last."""
    firsts = [trial for trial in trials if trial.rung == 0 and trial.outcome == "ok" and trial.rate]

    def gain(name: str) -> float:
        with_it = [math.log(trial.rate) for trial in firsts if trial.rate and trial.choice[name] == turned[name]]
        without = [math.log(trial.rate) for trial in firsts if trial.rate and trial.choice[name] == default[name]]
        return fmean(with_it) - fmean(without) if with_it and without else -math.inf

    return sorted(turned, key=gain, reverse=True)
