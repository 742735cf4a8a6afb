"""Options of every command that plans runs: what is measured, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from suite.cli.options import completion
from suite.cli.options.fields import WORK, LayoutOptions, WorkloadOptions, layout_choices, workload_changes
from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.conduct.planning.machine import Machine
    from suite.conduct.planning.request import Request
    from suite.spec.presets import Preset
    from suite.spec.stopping import Stopping

Names = list[str] | None
MEASURING = "Measuring"


@dataclass(frozen=True)
class Basics:
    """What is measured, how and for how long; the fields of workload and layout follow from their declarations."""

    preset: Annotated[
        str | None,
        typer.Option(
            help="a whole measurement, such as ladder or grpo-8b (`suite sizes`); other options override the preset's",
            autocompletion=completion.presets,
            rich_help_panel=WORK,
        ),
    ] = None
    backend: Annotated[
        Names,
        typer.Option(
            help="backend; repeat for several [default: deepspeed and megatron, or the preset's]",
            autocompletion=completion.backends,
            rich_help_panel=WORK,
        ),
    ] = None
    size: Annotated[
        Names,
        typer.Option(
            help="model size; repeat for several (see `suite sizes`)",
            autocompletion=completion.sizes,
            rich_help_panel=WORK,
        ),
    ] = None
    ladder: Annotated[
        str | None,
        typer.Option(
            help="all sizes of a ladder, e.g. cpu, true, trlx", autocompletion=completion.ladders, rich_help_panel=WORK
        ),
    ] = None
    shape: Annotated[
        list[Path] | None,
        typer.Option(help="shape file: YAML, or a Hugging Face config.json", rich_help_panel=WORK),
    ] = None
    workload: Annotated[
        str | None,
        typer.Option(
            help="named work of an iteration, which other options change [default: cpu or trlx-ds-chat]",
            autocompletion=completion.workloads,
            rich_help_panel=WORK,
        ),
    ] = None
    scaling: Annotated[
        Names,
        typer.Option(
            help="weak (samples per device fixed) or strong (in all); repeat for both [default: weak]",
            rich_help_panel=WORK,
        ),
    ] = None
    precision: Annotated[
        Names,
        typer.Option(
            help="fp32, bf16 or fp16 [default: bf16 on cuda, fp32 on cpu]; as 3%: add runs until the 95 % interval of "
            "each rate, or ratio of rows in turns, is that narrow (may be given beside the other)",
            rich_help_panel=MEASURING,
        ),
    ] = None
    difference: Annotated[
        str | None,
        typer.Option(
            help="as 5%: add runs until rows of equal work are told apart, or are equivalent within that",
            rich_help_panel=MEASURING,
        ),
    ] = None
    most_repeats: Annotated[
        int,
        typer.Option(
            min=1, max=1000, help="runs that --precision and --difference give a row at most", rich_help_panel=MEASURING
        ),
    ] = 30
    with_suspect: Annotated[
        bool,
        typer.Option(
            "--with-suspect",
            help="with --precision or --difference: runs that something disturbed count too, as on a shared machine",
            rich_help_panel=MEASURING,
        ),
    ] = False
    warmup: Annotated[int, typer.Option(help="iterations recorded but not counted", rich_help_panel=MEASURING)] = 2
    iterations: Annotated[
        int | None,
        typer.Option(
            help="iterations counted in each run [default: 8, or on a known GPU by the time that one should take; "
            "runs that --precision or --difference add: by spread and start-up of the first]",
            rich_help_panel=MEASURING,
        ),
    ] = None
    repeats: Annotated[
        int,
        typer.Option(
            help="runs of each row in fresh processes; 3 to publish, 5 to rank; with --precision or "
            "--difference those before the first look",
            rich_help_panel=MEASURING,
        ),
    ] = 3
    seed: Annotated[int, typer.Option(help="seed of weights, prompts and sampling", rich_help_panel=MEASURING)] = 1234
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="CPU threads of each rank [default: 1 on cpu; on cuda its share of the cores, 8 on a cluster]",
            rich_help_panel=MEASURING,
        ),
    ] = None
    bind: Annotated[
        bool,
        typer.Option("--bind/--no-bind", help="cuda: each rank on CPUs near its GPU", rich_help_panel=MEASURING),
    ] = True
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="engines, here or in a container: after what is counted, one more iteration under torch's profiler; "
            "traces stay in the run's folder",
            rich_help_panel=MEASURING,
        ),
    ] = False
    track: Annotated[
        str | None,
        typer.Option(
            help="fairness track: equal-config, vendor-default or tuned [default: the first, or the preset's]",
            rich_help_panel=MEASURING,
        ),
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option(
            help="kill a run that takes longer than this [default: 1h, or on a known GPU by the time expected]",
            rich_help_panel=MEASURING,
        ),
    ] = None
    hang_timeout: Annotated[
        str | None,
        typer.Option(
            help="kill a run that emits no event for this long [default: 10m, more for phases expected to be long]",
            rich_help_panel=MEASURING,
        ),
    ] = None
    price: Annotated[
        float | None,
        typer.Option(min=0, help="money per GPU and hour, for the cost of the plan", rich_help_panel=MEASURING),
    ] = None
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="start runs that are not expected to fit or to end in time, or have more CPU ranks than cores",
            rich_help_panel=MEASURING,
        ),
    ] = False


@dataclass(frozen=True)
class Work(LayoutOptions, WorkloadOptions, Basics):
    """All that says what is measured, wherever it runs."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that were named, else the preset's, else both engines."""
        if self.backend:
            return tuple(self.backend)
        preset = self._preset
        return ("deepspeed", "megatron") if preset is None else preset.backends

    def installed(self, machine: Machine) -> Work:
        """This work on the backends that the machine has, where a preset compares those that are there and none was
        named; one line on standard error for each that is left out. Raises UsageError where none is left."""
        from suite.cli.options.check import warn
        from suite.spec.base import UsageError

        preset = self._preset
        if self.backend or preset is None or not preset.installed_only:
            return self
        there, missing = [], []
        for name in preset.backends:
            try:
                machine.stacks((name,))
                there.append(name)
            except UsageError as error:
                missing.append(str(error))
        if not there:
            raise UsageError(f"preset {preset.name}: no backend of it is installed here; {missing[0]}")
        for line in missing:
            warn("note: ", f"left out: {line}")
        return replace(self, backend=there)

    def in_environments(self, machine: Machine) -> Work:
        """This work on each environment of the backends, where several are compared."""
        seats = [seat for name in self.backends for seat in machine.environments(name)]
        return self if seats == [*self.backends] else replace(self, backend=seats)

    @property
    def is_for_gpus(self) -> bool:
        """Whether a preset is named whose layouts are for a device of the catalogue; its twins for a CPU are not."""
        from suite.spec.catalogue import find_device

        preset = self._preset
        return preset is not None and find_device(preset.written_for) is not None

    def requests(self, machine: Machine, ranks: tuple[int, ...], nodes: int | None = None) -> tuple[Request, ...]:
        """What is asked of a machine. Empty ``ranks`` and no ``nodes``: neither was given.

        Raises UsageError. Values of a preset that an option overrides are listed on standard error.
        """
        requests, lines = self._asked(machine, ranks, nodes)
        for line in lines:
            say(line, err=True)
        return requests

    def over_nodes(self, machine: Machine, nodes: tuple[int, ...], ranks_per_node: int) -> tuple[Request, ...]:
        """The same on each number of nodes."""
        asked = [self._asked(machine, (count * ranks_per_node,), count) for count in nodes]
        for line in dict.fromkeys(line for _, lines in asked for line in lines):
            say(line, err=True)
        return tuple(request for requests, _ in asked for request in requests)

    def _asked(
        self, machine: Machine, ranks: tuple[int, ...], nodes: int | None
    ) -> tuple[tuple[Request, ...], list[str]]:
        """The requests, and a line for each part of a preset that an option replaces."""
        from suite.cli.options.reading import checked
        from suite.conduct.planning.preset import GivenOptions, cross_product, preset_requests, replaced

        options = {
            "sizes": self.size or (),
            "ladder": self.ladder,
            "shape_files": self.shape or (),
            "ranks": ranks,
            "nodes": nodes,
            "workload": self.workload,
            "work": workload_changes(self),
            "track": self.track,
            "precision": self.number_format,
        }
        given = checked(lambda: GivenOptions.model_validate(options))
        common = self._common(machine)
        preset = self._preset
        if preset is None:
            return checked(lambda: cross_product(given, common, machine.usual_workload, machine.usual_precision)), []
        requests = checked(lambda: preset_requests(preset, given, common))
        return requests, list(replaced(preset, given, common))

    @property
    def number_format(self) -> str | None:
        """What ranks compute in, where it was named. Raises UsageError where it was named twice."""
        from suite.spec.base import UsageError

        named = [text for text in self.precision or () if "%" not in text]
        if len(named) > 1:
            raise UsageError(f"--precision names two number formats, {named[0]} and {named[1]}")
        return named[0] if named else None

    @property
    def stopping(self) -> Stopping | None:
        """The rule that adds runs, where a precision or a difference is asked for. Raises UsageError."""
        from suite.cli.options.reading import checked
        from suite.spec.base import UsageError
        from suite.spec.stopping import FEWEST_RUNS, Stopping
        from suite.spec.typed import share

        widths = [text for text in self.precision or () if "%" in text]
        if len(widths) > 1:
            raise UsageError(f"--precision asks for two widths, {widths[0]} and {widths[1]}")
        if not widths and self.difference is None:
            if self.with_suspect:
                raise UsageError("--with-suspect goes with --precision 3% or --difference 5%")
            return None
        if self.repeats < FEWEST_RUNS:
            raise UsageError(f"--repeats {self.repeats}: intervals that are looked at need {FEWEST_RUNS} runs at least")
        body = {
            "precision": share("--precision", widths[0]) if widths else None,
            "difference": None if self.difference is None else share("--difference", self.difference),
            "least": self.repeats,
            "most": self.most_repeats,
            "iterations": "chosen" if self.iterations is None else "fixed",
            "with_suspect": self.with_suspect,
        }
        return cast("Stopping", checked(lambda: Stopping.model_validate(body)))

    def _repeats(self) -> dict[str, Any]:
        rule = self.stopping
        if rule is None:
            return {"repeats": self.repeats}
        return {"repeats": rule.least, "stopping": rule}

    @property
    def _preset(self) -> Preset | None:
        from suite.spec.presets import find_preset

        return None if self.preset is None else find_preset(self.preset)

    def _common(self, machine: Machine) -> dict[str, Any]:
        limits = self._limits()
        asked = {"iterations": self.iterations, **limits}
        return {
            "backends": self.backends,
            "scalings": self.scaling or ("weak",),
            "layout": layout_choices(self),
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
            **self._repeats(),
            "device_memory_bytes": machine.device_memory_bytes,
            "device_name": machine.device_name,
            "left_open": tuple(name for name, value in asked.items() if value is None),
        }

    def _limits(self) -> dict[str, float | None]:
        """The limits that were given. Raises UsageError where they contradict each other."""
        from suite.cli.options.reading import seconds
        from suite.spec.base import UsageError

        run = None if self.timeout is None else seconds(self.timeout)
        silence = None if self.hang_timeout is None else seconds(self.hang_timeout)
        if run is not None and silence is not None and silence > run:
            raise UsageError(
                f"--hang-timeout {self.hang_timeout} is longer than --timeout {self.timeout}: no hang would ever be "
                "seen; give a shorter one"
            )
        return {"run_seconds": run, "silence_seconds": silence}


USUAL_WORK = Work()
