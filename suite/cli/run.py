"""`suite run`: measure a cross product of backends, sizes, ranks and layouts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import DONE, INTERRUPTED, RUN_FAILED, command
from suite.cli.options import Python

Names = list[str] | None
Numbers = list[int] | None


@command
def run(
    backend: Annotated[
        Names, typer.Option(help="backend; repeat for several [default: deepspeed and megatron]")
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
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16 or fp16 [default: bf16 on cuda, fp32 on cpu]")
    ] = None,
    warmup: Annotated[int, typer.Option(help="iterations recorded but not counted")] = 2,
    iterations: Annotated[int, typer.Option(help="iterations counted in each run")] = 8,
    repeats: Annotated[int, typer.Option(help="runs of each row in fresh processes; 3 to publish, 5 to rank")] = 3,
    seed: Annotated[int, typer.Option(help="seed of weights, prompts and sampling")] = 1234,
    track: Annotated[str, typer.Option(help="fairness track: equal-config, vendor-default or tuned")] = "equal-config",
    budget: Annotated[str | None, typer.Option(help="start no further run after this long, e.g. 20m")] = None,
    timeout: Annotated[str, typer.Option(help="give a run up after this long")] = "1h",
    silence: Annotated[str, typer.Option(help="take a run without an event for this long for hung")] = "10m",
    runs: Annotated[Path, typer.Option(help="results folder")] = Path("runs"),
    python: Python = None,
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
    from suite.conduct import request as asked
    from suite.conduct.machine import look_at_machine
    from suite.conduct.plan import make_plan
    from suite.conduct.session import Settings, run_plan, states
    from suite.launch.local import LocalLauncher

    python = python or sys.executable
    machine = look_at_machine(python, device)
    wanted = {
        "backends": backend or ("deepspeed", "megatron"),
        "sizes": asked.chosen_sizes(size or [], ladder, shape or []),
        "ranks": rank_counts(ranks or ["1"], machine.places),
        "workload": checked(
            lambda: asked.chosen_workload(workload or machine.usual_workload, trainable_layers, reference)
        ),
        "scalings": scaling or ("weak",),
        "layout": {
            "zero_stage": zero or (),
            "tensor": tp or (),
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
        "track": track,
        "device_memory_bytes": machine.device_memory_bytes,
    }
    request = checked(lambda: asked.Request.model_validate(wanted))
    machine.require_room(max(request.ranks), oversubscribe)
    settings = Settings(
        root=runs, python=python, budget_seconds=seconds(budget) if budget else None, retry_failed=retry_failed
    )
    plan = make_plan(request, machine.stacks(request.backends))
    if dry_run:
        rows = display.plan_rows(states(plan, runs))
        if as_json:
            print_json({"plan": plan.id, "runs": rows, "skipped": [entry.model_dump() for entry in plan.skipped]})
        else:
            display.print_plan(plan, rows)
        return DONE
    summary = run_plan(plan, settings, LocalLauncher(), display.live_view(to_stderr=as_json))
    if as_json:
        print_json({"plan": plan.id, **summary.model_dump(mode="json")})
    else:
        display.print_summary(summary, runs)
    if summary.interrupted:
        return INTERRUPTED
    return RUN_FAILED if summary.failed or summary.failed_before else DONE
