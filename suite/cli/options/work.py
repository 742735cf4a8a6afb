"""Options of every command that plans runs: what is measured, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from suite.conduct.planning.machine import Machine
    from suite.conduct.planning.request import Request
    from suite.spec.presets import Preset

Names = list[str] | None
Numbers = list[int] | None


@dataclass(frozen=True)
class Work:
    """What is measured, wherever it runs."""

    preset: Annotated[
        str | None,
        typer.Option(
            help="a whole measurement: trlx-ds-chat, ladder or ds-chat-step3; what is said beside it replaces its parts"
        ),
    ] = None
    backend: Annotated[
        Names, typer.Option(help="backend; repeat for several [default: deepspeed and megatron, or the preset's]")
    ] = None
    size: Annotated[Names, typer.Option(help="model size; repeat for several (see `suite sizes`)")] = None
    ladder: Annotated[str | None, typer.Option(help="all sizes of a ladder, e.g. cpu, true, trlx")] = None
    shape: Annotated[list[Path] | None, typer.Option(help="shape file: YAML, or a Hugging Face config.json")] = None
    workload: Annotated[str | None, typer.Option(help="work of an iteration [default: cpu or trlx-ds-chat]")] = None
    scaling: Annotated[
        Names, typer.Option(help="weak (samples per device fixed) or strong (in all); repeat for both [default: weak]")
    ] = None
    zero: Annotated[Numbers, typer.Option(help="DeepSpeed ZeRO stage 0-3; repeat to compare")] = None
    tp: Annotated[Numbers, typer.Option(help="Megatron tensor parallel degree; repeat to compare")] = None
    pp: Annotated[Numbers, typer.Option(help="Megatron pipeline parallel degree; repeat to compare")] = None
    sequence_parallel: Annotated[
        bool | None, typer.Option(help="Megatron sequence parallelism [default: on where tensor parallel]")
    ] = None
    distributed_optimizer: Annotated[
        bool | None, typer.Option(help="shard Megatron's optimizer states over data parallel [default: on]")
    ] = None
    recompute: Annotated[bool, typer.Option(help="recompute activations in the backward pass")] = False
    offload_optimizer: Annotated[bool, typer.Option(help="keep optimizer states in host memory")] = False
    offload_parameters: Annotated[bool, typer.Option(help="keep parameters in host memory (ZeRO-3)")] = False
    trainable_layers: Annotated[
        int | None, typer.Option(help="train only the last k layers [default: as the workload says]")
    ] = None
    reference: Annotated[str | None, typer.Option(help="reference policy: full copy, or hydra on the frozen trunk")] = (
        None
    )
    precision: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16 [default: bf16 on cuda, fp32 on cpu]")] = (
        None
    )
    warmup: Annotated[int, typer.Option(help="iterations recorded but not counted")] = 2
    iterations: Annotated[int, typer.Option(help="iterations counted in each run")] = 8
    repeats: Annotated[int, typer.Option(help="runs of each row in fresh processes; 3 to publish, 5 to rank")] = 3
    seed: Annotated[int, typer.Option(help="seed of weights, prompts and sampling")] = 1234
    track: Annotated[
        str | None,
        typer.Option(
            help="fairness track: equal-config, vendor-default or tuned [default: the first, or the preset's]"
        ),
    ] = None
    timeout: Annotated[str, typer.Option(help="give a run up after this long")] = "1h"
    silence: Annotated[str, typer.Option(help="take a run without an event for this long for hung")] = "10m"

    @property
    def backends(self) -> tuple[str, ...]:
        """Those that were named, else the preset's, else both engines."""
        if self.backend:
            return tuple(self.backend)
        preset = self._preset
        return ("deepspeed", "megatron") if preset is None else preset.backends

    def requests(self, machine: Machine, ranks: tuple[int, ...], nodes: int | None = None) -> tuple[Request, ...]:
        """What is asked of a machine. Empty ``ranks`` and no ``nodes``: nothing was said of them.

        Raises UsageError. Parts of a preset that are replaced are told on standard error.
        """
        from suite.cli.options.reading import checked
        from suite.conduct.planning.preset import GivenOptions, cross_product, preset_requests, replaced

        options = {
            "sizes": self.size or (),
            "ladder": self.ladder,
            "shape_files": self.shape or (),
            "ranks": ranks,
            "nodes": nodes,
            "workload": self.workload,
            "trainable_layers": self.trainable_layers,
            "reference": self.reference,
            "track": self.track,
            "precision": self.precision,
        }
        given = checked(lambda: GivenOptions.model_validate(options))
        common = self._common(machine)
        preset = self._preset
        if preset is None:
            return checked(lambda: cross_product(given, common, machine.usual_workload, machine.usual_precision))
        requests = checked(lambda: preset_requests(preset, given, common))
        for line in replaced(preset, given, common):
            typer.echo(line, err=True)
        return requests

    @property
    def _preset(self) -> Preset | None:
        from suite.spec.presets import find_preset

        return None if self.preset is None else find_preset(self.preset)

    def _common(self, machine: Machine) -> dict[str, Any]:
        from suite.cli.options.reading import seconds

        return {
            "backends": self.backends,
            "scalings": self.scaling or ("weak",),
            "layout": {
                "zero_stage": self.zero or (),
                "tensor": tuple(self.tp or ()),
                "pipeline": self.pp or (),
                "sequence_parallel": self.sequence_parallel,
                "distributed_optimizer": self.distributed_optimizer,
                "recompute": "full" if self.recompute else "none",
                "offload_optimizer": self.offload_optimizer,
                "offload_parameters": self.offload_parameters,
            },
            "measure": {
                "device": machine.device,
                "warmup": self.warmup,
                "iterations": self.iterations,
                "seed": self.seed,
            },
            "limits": {"run_seconds": seconds(self.timeout), "silence_seconds": seconds(self.silence)},
            "repeats": self.repeats,
            "device_memory_bytes": machine.device_memory_bytes,
        }


USUAL_WORK = Work()
