"""Options of every command that plans runs: what is measured, and for how long."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

from suite.cli.command import checked, flag, group, option
from suite.cli.options.fields import LAYOUT, WORK, LayoutOptions, WorkloadOptions, layouts_asked, workload_changes
from suite.cli.output import DONE, answer, warn
from suite.conduct.planning.machine import Machine
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.preflight import Preflight
from suite.conduct.planning.request import GivenOptions, Request, RunState, replaced, requests_of
from suite.conduct.running.state import states
from suite.spec.catalogue import Preset, find_device, find_preset
from suite.spec.manifest import FEWEST_RUNS, Manifest, Stopping
from suite.spec.terminal import UsageError, note
from suite.spec.typed import seconds, share

Names = list[str] | None


@group(WORK)
class What:
    """What is measured; the fields of workload and layout follow from their declarations."""

    preset: str | None = option(
        "a whole measurement, such as ladder or grpo-8b (`suite sizes`); other options override the preset's"
    )
    backend: Names = option("backend; repeat for several [default: deepspeed and megatron, or the preset's]")
    size: Names = option("model size; repeat for several (see `suite sizes`)")
    ladder: str | None = option("all sizes of a ladder, e.g. cpu, true, trlx")
    shape: list[Path] | None = option("shape file: YAML, or a Hugging Face config.json")
    workload: str | None = option(
        "named work of an iteration, which other options change [default: cpu or trlx-ds-chat]"
    )
    scaling: Names = option("weak (samples per device fixed) or strong (in all); repeat for both [default: weak]")
    layout: Names = option(
        "options of this heading that go together, as tp=2,zero=3,no-packing; repeat to compare layouts", panel=LAYOUT
    )


@group("Measuring")
class Work(LayoutOptions, WorkloadOptions, What):
    """All that says what is measured, wherever it runs; and how, and for how long."""

    dtype: str | None = option("what ranks compute in [default: bf16 on cuda, fp32 on cpu]", metavar="fp32|bf16|fp16")
    until: str | None = option(
        "as 3%: add runs until the 95 % interval of each rate, or ratio of rows in turns, is that narrow"
    )
    difference: str | None = option(
        "as 5%: add runs until rows of equal work are told apart, or are equivalent within that"
    )
    most_repeats: int = option("runs that --until and --difference give a row at most", 30, min=1, max=1000)
    with_suspect: bool = flag(
        "with --until or --difference: runs that something disturbed count too, as on a shared machine"
    )
    warmup: int = option("iterations recorded but not counted", 2)
    iterations: int | None = option(
        "iterations counted in each run [default: 8, or on a known GPU by the time that one should take; "
        "runs that --until or --difference add: by spread and start-up of the first]"
    )
    repeats: int = option(
        "runs of each row in fresh processes; 3 to publish, 5 to rank; with --until or "
        "--difference those before the first look",
        3,
    )
    seed: int = option("seed of weights, prompts and sampling", 1234)
    threads: int | None = option(
        "CPU threads of each rank [default: 1 on cpu; on cuda its share of the cores, 8 on a cluster]", min=1
    )
    bind: bool = option("cuda: each rank on CPUs near its GPU", True, "--bind/--no-bind")
    profile: bool = flag(
        "engines, here or in a container: after what is counted, one more iteration under torch's profiler; "
        "traces stay in the run's folder"
    )
    track: str | None = option("fairness track [default: the first]", metavar="equal-config|vendor-default|tuned")
    timeout: str | None = option(
        "kill a run that takes longer than this [default: 1h, or on a known GPU by the time expected]"
    )
    hang_timeout: str | None = option(
        "kill a run that emits no event for this long [default: 10m, more for phases expected to be long]"
    )
    price: float | None = option("money per GPU and hour, for the cost of the plan", min=0, metavar="AMOUNT")
    force: bool = flag("start runs that are not expected to fit or to end in time, or have more CPU ranks than cores")

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that were named, else the preset's, else both engines."""
        if self.backend:
            return tuple(self.backend)
        preset = self._preset
        return ("deepspeed", "megatron") if preset is None else preset.backends

    def on(self, machine: Machine) -> "Work":
        """This work on each environment of the backends, where several are compared; without those of a preset that the
        machine lacks, with a line for each, where none was named. Raises UsageError where none is left."""
        preset, missing = self._preset, dict[str, str]()
        for name in preset.backends if not self.backend and preset is not None and preset.installed_only else ():
            try:
                machine.stacks((name,))
            except UsageError as error:
                missing[name] = str(error)
        there = [name for name in self.backends if name not in missing]
        if not there:
            raise UsageError(f"preset {self.preset}: no backend of it is installed here; {missing[self.backends[0]]}")
        for line in missing.values():
            warn("note: ", f"left out: {line}")
        compared = {name: [seat for seat in machine.pythons if seat.startswith(f"{name}@")] for name in there}
        seats = [seat for name in there for seat in compared[name] or [name]]
        return self if seats == [*self.backends] else replace(self, backend=seats)

    @property
    def is_for_gpus(self) -> bool:
        """Whether a preset is named whose layouts are for a device of the catalogue; its twins for a CPU are not."""
        preset = self._preset
        return preset is not None and find_device(preset.written_for) is not None

    def requests(
        self, machine: Machine, ranks: tuple[int, ...], nodes: Sequence[int | None] = (None,)
    ) -> tuple[Request, ...]:
        """What is asked of a machine; of a cluster, ``ranks`` on each of the numbers of nodes; empty: not given. Raises
        UsageError. Values of a preset that an option overrides are listed on standard error."""
        options = {
            "sizes": self.size or (),
            "ladder": self.ladder,
            "shape_files": self.shape or (),
            "workload": self.workload,
            "work": workload_changes(self),
            "track": self.track,
            "precision": self.dtype,
        }
        preset, common = self._preset, self._common(machine)
        found: list[Request] = []
        lines: dict[str, None] = {}
        for count, layout in product(nodes, layouts_asked(self, self.layout or ())):
            on = {"ranks": [(count or 1) * each for each in ranks], "nodes": count}
            given = checked(partial(GivenOptions.model_validate, {**options, **on}))
            asked = {**common, "layout": layout}
            found += checked(partial(requests_of, preset, given, asked))
            lines |= dict.fromkeys(replaced(preset, given, asked) if preset else ())
        for line in lines:
            note(line)
        return tuple(found)

    @property
    def stopping(self) -> Stopping | None:
        """The rule that adds runs, where a precision or a difference is asked for. Raises UsageError."""
        if self.until is None and self.difference is None:
            if self.with_suspect:
                raise UsageError("--with-suspect goes with --until 3% or --difference 5%")
            return None
        if self.repeats < FEWEST_RUNS:
            raise UsageError(f"--repeats {self.repeats}: intervals that are looked at need {FEWEST_RUNS} runs at least")
        body = {
            "precision": None if self.until is None else share("--until", self.until),
            "difference": None if self.difference is None else share("--difference", self.difference),
            "least": self.repeats,
            "most": self.most_repeats,
            "iterations": "chosen" if self.iterations is None else "fixed",
            "with_suspect": self.with_suspect,
        }
        return cast("Stopping", checked(lambda: Stopping.model_validate(body)))

    @property
    def _preset(self) -> Preset | None:
        return None if self.preset is None else find_preset(self.preset)

    def _common(self, machine: Machine) -> dict[str, Any]:
        run = None if self.timeout is None else seconds("--timeout", self.timeout)
        silence = None if self.hang_timeout is None else seconds("--hang-timeout", self.hang_timeout)
        if run is not None and silence is not None and silence > run:
            raise UsageError(f"--hang-timeout {self.hang_timeout} is longer than --timeout {self.timeout}: shorten it")
        limits = {"run_seconds": run, "silence_seconds": silence}
        asked = {"iterations": self.iterations, **limits}
        return {
            "backends": self.backends,
            "scalings": self.scaling or ("weak",),
            "measure": {
                "device": machine.device,
                "threads_per_rank": self.threads or machine.threads_per_rank,
                "bind": "near-gpu" if self.bind and machine.device == "cuda" else "none",
                "warmup": self.warmup,
                "seed": self.seed,
                **({"profile": True} if self.profile else {}),
                **({"variables": machine.variables} if machine.variables else {}),
                **({} if self.iterations is None else {"iterations": self.iterations}),
            },
            "limits": {name: value for name, value in limits.items() if value is not None},
            "repeats": self.repeats,
            "stopping": self.stopping,
            "device_memory_bytes": machine.device_memory_bytes,
            "device_name": machine.device_name,
            "left_open": tuple(name for name, value in asked.items() if value is None),
        }


def still_to_do(states: Sequence[tuple[Manifest, RunState]], retry_failed: bool) -> set[str]:
    """Ids of the runs that a command would start."""
    left = {"to run", "interrupted", "damaged", *(["failed before"] if retry_failed else [])}
    return {manifest.run.id for manifest, state in states if state in left}


def refuse(found: Preflight, runs: Collection[str], force: bool) -> None:
    """Raise UsageError where one of these runs is not expected to fit or to end in time; with ``force`` only warn."""
    refusals = found.of(runs).refusals
    if len(refusals) == 1 and not force:
        raise UsageError(f"{refusals[0]}; --force runs it all the same")
    for line in refusals:
        warn("warning: " if force else "refused: ", line)
    if refusals and not force:
        raise UsageError(f"{len(refusals)} rows are refused; leave them out or change them, or run them with --force")


def show_plan(
    plan: Plan,
    found: Preflight,
    root: Path,
    retry_failed: bool,
    work: Work,
    elsewhere: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> int:
    """The dry run. ``elsewhere``: what this machine cannot run of it; ``more``: of the JSON. Raises as ``refuse``."""
    from suite.conduct.planning.show import plan_rows, print_plan

    now = states(plan.manifests, root)
    to_do = still_to_do(now, retry_failed)
    rows, left = plan_rows(now, found), found.of(to_do)
    facts = {"plan": plan.id, "runs": rows, "notes": plan.notes, "expected": left.totals(), "not_here": elsewhere}
    facts |= {"skipped": [entry.model_dump() for entry in plan.skipped], **(more or {})}
    answer(facts, lambda: print_plan(plan, rows, left))
    for line in elsewhere:
        warn("not on this machine: ", line)
    refuse(found, to_do, work.force)
    return DONE
