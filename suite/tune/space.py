"""All rows that a search may try: every setting of a backend's knobs that its stack takes and the planner lets pass."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from suite.backends.registry import seat_of
from suite.conduct.planning.machine import Machine
from suite.conduct.planning.plan import make_joint_plan
from suite.conduct.planning.preflight import preflight
from suite.conduct.planning.request import Request
from suite.spec.base import Track, UsageError, digest
from suite.spec.fields import chosen
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.manifest import Manifest
from suite.tune.knobs import MICRO_BATCH, THREADS, Choice, Value, choice_of, named_knobs, values_of

#: More settings than that are not looked at one by one.
MOST_SETTINGS = 4000


@dataclass(frozen=True)
class Candidate:
    """A setting of all knobs, and the first repeat of its row."""

    choice: dict[str, Value]
    manifest: Manifest


@dataclass(frozen=True)
class Space:
    """Of one backend. ``candidates``: the row that its stack makes by itself first; ``settings``: values of the knobs,
    in their order -> index of the candidate that they come to; ``refused``: reason -> how many settings."""

    backend: str
    knobs: dict[str, tuple[Value, ...]]
    candidates: tuple[Candidate, ...]
    settings: dict[tuple[Value, ...], int]
    refused: dict[str, int]

    @property
    def default(self) -> Candidate:
        return self.candidates[0]

    def find(self, choice: Choice) -> Candidate | None:
        """The candidate of these values; None where they were refused."""
        wanted = {**self.default.choice, **choice}
        return next((each for each in self.candidates if each.choice == wanted), None)


@dataclass(frozen=True)
class Rows:
    """What rows of one request are planned with."""

    request: Request
    machine: Machine
    stacks: Mapping[str, Mapping[str, str]]
    images: Mapping[str, str | None]
    code: Mapping[str, Mapping[str, str]]

    def manifest(self, backend: str, choice: Choice, track: Track = "tuned", **measure: Any) -> Manifest:
        """The first repeat of a row; ``measure``: fields of it that are others than the request's.

        Raises UsageError with the reasons for which the stack cannot run it.
        """
        request = self.request
        fields = {name: value for name, value in choice.items() if name not in (MICRO_BATCH, THREADS)}
        several = chosen(Layout, "compare")
        layout = {name: (value,) if name in several else value for name, value in fields.items()}
        known = seat_of(backend)[0].settings
        given = {name: value for name, value in request.layout if name in known}
        if THREADS in choice:
            measure["threads_per_rank"] = choice[THREADS]
        changes: dict[str, Any] = {
            "backends": (backend,),
            "layout": LayoutChoices(**{**given, **layout}),
            "measure": request.measure.model_copy(update=measure),
            "repeats": 1,
            "track": track,
            "left_open": tuple(name for name in request.left_open if name != "iterations"),
        }
        if MICRO_BATCH in choice:
            changes["workload"] = request.workload.model_copy(update={"micro_batch": choice[MICRO_BATCH]})
        asked = (request.model_copy(update=changes),)
        return make_joint_plan(asked, self.stacks, self.images, self.machine.manner, self.code).firsts[0]


def work_of(manifest: Manifest) -> str:
    """Equal of rows that a study may compare: all that is work, of which the micro batch is none."""
    workload = manifest.workload.model_dump(mode="json", exclude={"name", "note", "source", "micro_batch"})
    return digest(
        {
            "size": manifest.size.model_dump(mode="json", exclude={"note", "source"}),
            "workload": workload,
            "samples": manifest.work.global_rollouts,
            "lengths": None if manifest.work.lengths is None else manifest.work.lengths.model_dump(mode="json"),
            "ranks": manifest.layout.ranks,
            "precision": manifest.measure.precision,
            "seed": manifest.measure.seed,
        }
    )


def spaces_of(rows: Rows, names: Sequence[str], fixed: Sequence[str], iterations: int) -> list[Space]:
    """The space of each backend. ``names``: knobs as typed; ``fixed``: those that an option gave one value.

    Raises UsageError where a backend can run nothing, or there is nothing to try.
    """
    knobs = named_knobs(names, rows.request.backends, rows.request.layout)
    spaces = [_space(rows, backend, knobs, fixed, iterations) for backend in rows.request.backends]
    if all(len(space.candidates) == 1 for space in spaces):
        reasons = [reason for space in spaces for reason in space.refused]
        why = f": {reasons[0]}" if reasons else ", with these options"
        raise UsageError(f"there is nothing to try but the defaults{why}")
    return spaces


def _space(rows: Rows, backend: str, knobs: Sequence[str], fixed: Sequence[str], iterations: int) -> Space:
    machine = rows.machine
    default = rows.manifest(backend, {}, iterations=iterations)
    cores = 0 if machine.device == "cuda" else machine.max_ranks // default.layout.ranks
    values = values_of(default, cores, knobs, rows.request.layout, fixed)
    count = math.prod(map(len, values.values()))
    if count > MOST_SETTINGS:
        raise UsageError(
            f"{backend} has {count:,} settings of {', '.join(values)}, of which {MOST_SETTINGS:,} are looked at: "
            "name some with --knob, or give values with their options"
        )
    refused = Counter[str]()
    found: dict[str, Candidate] = {}
    places: dict[tuple[Value, ...], str] = {}
    own = tuple(choice_of(default, values).values())
    for setting in dict.fromkeys((own, *product(*values.values()))):
        try:
            manifest = rows.manifest(backend, dict(zip(values, setting, strict=True)), iterations=iterations)
            _require(rows, manifest)
        except UsageError as error:
            refused[str(error)] += 1
            continue
        places[setting] = _same(manifest)
        found.setdefault(places[setting], Candidate(choice_of(manifest, values), manifest))
    if own not in places:
        raise UsageError(f"{backend} as its stack lays it out cannot be run: {next(iter(refused))}")
    order = {key: index for index, key in enumerate(found)}
    settings = {setting: order[key] for setting, key in places.items()}
    return Space(backend, values, tuple(found.values()), settings, dict(refused.most_common()))


def _require(rows: Rows, manifest: Manifest) -> None:
    """Raises UsageError for a row that cannot be run here, or that the planner does not expect to fit."""
    machine = rows.machine
    machine.require_generation([manifest])
    machine.require_memory([manifest])
    machine.require_room(manifest.layout.ranks, False, manifest.layout.nodes, manifest.measure.threads_per_rank)
    refusals = preflight([manifest], machine.device_name, None, machine.host_memory_bytes).refusals
    if refusals:
        raise UsageError(refusals[0])


def _same(manifest: Manifest) -> str:
    """Equal of rows that do the same in the same way, however their micro batch was bounded."""
    body = {"layout": manifest.layout.model_dump(mode="json"), "micro_batch": manifest.work.micro_batch}
    return digest({**body, "threads": manifest.measure.threads_per_rank})
