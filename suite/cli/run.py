"""`suite run`: measure a cross product of backends, sizes, ranks and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import DONE, INTERRUPTED, RUN_FAILED, command
from suite.cli.launchers import HERE, Where, takes_where

Names = list[str] | None
Numbers = list[int] | None


@command
@takes_where
def run(
    preset: Annotated[
        str | None,
        typer.Option(help="a whole measurement: trlx-ds-chat or ladder; what is said beside it replaces its parts"),
    ] = None,
    backend: Annotated[
        Names, typer.Option(help="backend; repeat for several [default: deepspeed and megatron, or the preset's]")
    ] = None,
    size: Annotated[Names, typer.Option(help="model size; repeat for several (see `suite sizes`)")] = None,
    ladder: Annotated[str | None, typer.Option(help="all sizes of a ladder, e.g. cpu, true, trlx")] = None,
    shape: Annotated[list[Path] | None, typer.Option(help="shape file: YAML, or a Hugging Face config.json")] = None,
    ranks: Annotated[
        Names, typer.Option(envvar="SUITE_RANKS", help="number of ranks, or all; repeat for several [default: 1]")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="work of an iteration [default: cpu or trlx-ds-chat]")] = None,
    scaling: Annotated[
        Names, typer.Option(help="weak (samples per device fixed) or strong (in all); repeat for both [default: weak]")
    ] = None,
    zero: Annotated[Numbers, typer.Option(help="DeepSpeed ZeRO stage 0-3; repeat to compare")] = None,
    tp: Annotated[Numbers, typer.Option(help="Megatron tensor parallel degree; repeat to compare")] = None,
    pp: Annotated[Numbers, typer.Option(help="Megatron pipeline parallel degree; repeat to compare")] = None,
    sequence_parallel: Annotated[
        bool | None, typer.Option(help="Megatron sequence parallelism [default: on where tensor parallel]")
    ] = None,
    distributed_optimizer: Annotated[
        bool | None, typer.Option(help="shard Megatron's optimizer states over data parallel [default: on]")
    ] = None,
    recompute: Annotated[bool, typer.Option(help="recompute activations in the backward pass")] = False,
    offload_optimizer: Annotated[bool, typer.Option(help="keep optimizer states in host memory")] = False,
    offload_parameters: Annotated[bool, typer.Option(help="keep parameters in host memory (ZeRO-3)")] = False,
    trainable_layers: Annotated[
        int | None, typer.Option(help="train only the last k layers [default: as the workload says]")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="reference policy: full copy, or hydra on the frozen trunk")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [default: auto, or cuda for a preset]")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16 or fp16 [default: bf16 on cuda, fp32 on cpu]")
    ] = None,
    warmup: Annotated[int, typer.Option(help="iterations recorded but not counted")] = 2,
    iterations: Annotated[int, typer.Option(help="iterations counted in each run")] = 8,
    repeats: Annotated[int, typer.Option(help="runs of each row in fresh processes; 3 to publish, 5 to rank")] = 3,
    seed: Annotated[int, typer.Option(help="seed of weights, prompts and sampling")] = 1234,
    track: Annotated[
        str | None,
        typer.Option(
            help="fairness track: equal-config, vendor-default or tuned [default: the first, or the preset's]"
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="start no further run after this long, e.g. 20m")] = None,
    timeout: Annotated[str, typer.Option(help="give a run up after this long")] = "1h",
    silence: Annotated[str, typer.Option(help="take a run without an event for this long for hung")] = "10m",
    runs: Annotated[Path, typer.Option(help="results folder")] = Path("runs"),
    where: Where = HERE,
    parallel: Annotated[
        int, typer.Option(min=1, help="docker: so many runs at once, on devices of their own; they disturb each other")
    ] = 1,
    retry_failed: Annotated[bool, typer.Option(help="run again what failed before")] = False,
    oversubscribe: Annotated[bool, typer.Option(help="allow more CPU ranks than cores")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and run nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the outcome as JSON")] = False,
) -> int:
    """Measure: every backend x size x ranks x layout, interleaved, each repeat in fresh processes.

    What the results folder already holds is skipped; an interrupted run is done again.
    """
    from suite.cli.options import checked, print_json, rank_counts, seconds
    from suite.conduct import display
    from suite.conduct.plan import make_joint_plan
    from suite.conduct.preset import Said, cross_product, preset_requests, replaced
    from suite.conduct.session import Settings, run_plan, states
    from suite.conduct.side_by_side import require_containers, run_side_by_side
    from suite.spec.presets import find_preset

    chosen = find_preset(preset) if preset is not None else None
    backends = tuple(backend or (chosen.backends if chosen else ("deepspeed", "megatron")))
    machine, launcher = where.open(device or ("cuda" if chosen else "auto"), backends, planning=dry_run)
    require_containers(machine, parallel)
    told = {
        "sizes": size or (),
        "ladder": ladder,
        "shape_files": shape or (),
        "ranks": rank_counts(ranks or [], machine.places),
        "workload": workload,
        "trainable_layers": trainable_layers,
        "reference": reference,
        "track": track,
    }
    said = checked(lambda: Said.model_validate(told))
    common = {
        "backends": backends,
        "scalings": scaling or ("weak",),
        "layout": {
            "zero_stage": zero or (),
            "tensor": tuple(tp or ()),
            "pipeline": pp or (),
            "sequence_parallel": sequence_parallel,
            "distributed_optimizer": distributed_optimizer,
            "recompute": "full" if recompute else "none",
            "offload_optimizer": offload_optimizer,
            "offload_parameters": offload_parameters,
        },
        "measure": {
            "device": machine.device,
            "precision": precision or machine.usual_precision,
            "warmup": warmup,
            "iterations": iterations,
            "seed": seed,
        },
        "limits": {"run_seconds": seconds(timeout), "silence_seconds": seconds(silence)},
        "repeats": repeats,
        "device_memory_bytes": machine.device_memory_bytes,
    }
    if chosen is None:
        requests = checked(lambda: cross_product(said, common, machine.usual_workload))
    else:
        requests = checked(lambda: preset_requests(chosen, said, common))
        for line in replaced(chosen, said, common):
            typer.echo(line, err=True)
    largest = max(requests, key=lambda request: (request.nodes, *request.ranks))
    needs = (max(largest.ranks), largest.nodes, largest.backends)
    elsewhere = machine.lacks(*needs) if dry_run and machine.device == "cuda" else ()
    if not elsewhere:
        machine.require_room(max(largest.ranks), oversubscribe, largest.nodes)
    settings = Settings(
        root=runs,
        python=machine.python,
        budget_seconds=seconds(budget) if budget else None,
        retry_failed=retry_failed,
    )
    stacks = machine.found_stacks if elsewhere else machine.stacks
    plan = make_joint_plan(requests, stacks(largest.backends), machine.images(largest.backends))
    if dry_run:
        rows = display.plan_rows(states(plan, runs))
        if as_json:
            skipped = [entry.model_dump() for entry in plan.skipped]
            print_json({"plan": plan.id, "runs": rows, "skipped": skipped, "not_here": list(elsewhere)})
        else:
            display.print_plan(plan, rows)
        for line in elsewhere:
            typer.echo(f"not on this machine: {line}", err=True)
        return DONE
    if parallel > 1:
        summary = run_side_by_side(plan, settings, machine, launcher, display.crowd_view(as_json), parallel)
    else:
        summary = run_plan(plan, settings, launcher, display.live_view(to_stderr=as_json))
    if as_json:
        print_json({"plan": plan.id, **summary.model_dump(mode="json")})
    else:
        display.print_summary(summary, runs)
    if summary.interrupted:
        return INTERRUPTED
    return RUN_FAILED if summary.failed or summary.failed_before else DONE
