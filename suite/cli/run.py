"""`suite run`: measure a cross product of backends, sizes, ranks and layouts; `suite tune`: each stack at its best."""

from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Literal, cast

import typer

from suite.cli.command import argument, command, flag, option, rank_counts
from suite.cli.main import INTERRUPTED
from suite.cli.options.launchers import Device, Where
from suite.cli.options.work import Names, Work, refuse, show_plan, still_to_do
from suite.cli.output import DONE, RUN_FAILED, answer, is_json, warn
from suite.conduct.planning.machine import Machine, require_other_stacks
from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.preflight import preflight
from suite.conduct.planning.turns import Turning, start_of, turns_refused
from suite.conduct.running.state import states
from suite.launch.outcome import Launcher
from suite.spec.terminal import UsageError, say
from suite.spec.typed import seconds


@command("print the outcome as JSON")
def run(
    *,
    context: typer.Context,
    options_file: Path | None = argument(
        "YAML file with options by their names, as size: [1.3B, 6.7B]", None, metavar="FILE"
    ),
    work: Work,
    ranks: Names = option(
        "number of ranks, or all; repeat for several [default: 1]", envvar="SUITE_RANKS", panel="Work"
    ),
    device: Device = None,
    turns: str | None = option(
        "rows of one size are started together and run an iteration each in turn while the others wait, or "
        "follow each other run by run [default: iterations, on CPUs where all fit]",
        metavar="iterations|rounds",
        panel="Measuring",
    ),
    turn_length: int | None = option(
        "iterations of a turn, of which the first does not count if there are several [default: 1, or as many "
        "as take 0.2 s]",
        min=1,
        max=255,
        panel="Measuring",
    ),
    budget: str | None = option("start no further run after this long, e.g. 20m", panel="Measuring"),
    retry_failed: bool = option("run again what failed before", False, panel="Measuring"),
    runs: Path = option("results folder", Path("runs")),
    where: Where,
    parallel: int = option(
        "docker: so many runs at once, on devices of their own; their timings may interfere",
        1,
        min=1,
        panel="Containers",
    ),
    same_stack: bool = flag("measure environments of --python that hold the same stack", panel="Where it runs"),
    dry_run: bool = flag("print the plan and what it should need and cost, and run nothing"),
) -> int:
    """Measure every combination of the backends, model sizes, numbers of ranks and layouts that are given.

    \b
    suite run --ladder cpu --ranks 1 --ranks 2 --until 3% --budget 20m
    suite run --size 1.3B --ranks 8 --backend deepspeed --zero 1 --zero 3
    suite run --preset ladder --dry-run
    suite run my-plan.yaml --repeats 5

    Each repeat is a run in fresh processes. Rows that are compared take turns, by iteration or run by run. Runs that
    the results folder already holds are skipped; an interrupted run is done again. With --until 3% or
    --difference 5% rows get runs until their intervals are that narrow, --budget ends, or a row cannot get there.
    """
    wanted = ("cuda" if work.is_for_gpus else "auto") if device is None else device
    machine, launcher = where.open(wanted, work.backends, planning=dry_run)
    if parallel > 1:
        if where.launcher != "docker":
            raise UsageError(f"--parallel {parallel} keeps runs apart in containers: add --launcher docker")
        from suite.conduct.running.at_once import Slots, side_by_side

        machine = machine.model_copy(update={"manner": (*machine.manner, f"{parallel}-at-once")})
    work = work.on(machine)
    source = context.get_parameter_source("ranks")
    if work.preset and source is not None and source.name == "ENVIRONMENT":
        ranks = None  # a default of this machine, where the preset has its own
    requests = work.requests(machine, rank_counts(ranks or [], machine.max_ranks))
    largest = max(requests, key=lambda request: (request.nodes, *request.ranks))
    needs = (max(largest.ranks), largest.nodes, largest.backends)
    elsewhere = list(machine.lacks(*needs) if dry_run else ())
    if not elsewhere or machine.device == "cpu":
        machine.require_room(max(largest.ranks), work.force, largest.nodes, largest.measure.threads_per_rank)
    limit = None if budget is None else seconds("--budget", budget)
    stacks, images = machine.stacks(largest.backends, bool(elsewhere)), machine.images(largest.backends)
    code = machine.code(largest.backends)
    if not same_stack:
        require_other_stacks(stacks, code)
    turning = _turning(turns, turn_length, machine, launcher, parallel)
    plan = make_joint_plan(requests, stacks, images, machine.manner, code, turning)
    found = preflight(plan.manifests, machine.device_name, work.price, machine.host_memory_bytes)
    rule = requests[0].stopping
    if rule is not None:  # what follows a rule is imported for it alone, as is what runs side by side
        from suite.conduct.running.pursuit import Pursuit, compared_with_none, follow, lines

        for name in compared_with_none(plan.firsts, rule):
            warn("note: ", f"{name} is compared with no other row")
    try:
        machine.require_generation(plan.manifests)
        machine.require_memory(plan.manifests)
    except UsageError as error:
        if not dry_run:
            raise
        elsewhere.append(str(error))
    if dry_run:
        return show_plan(plan, found, runs, retry_failed, work, elsewhere)
    to_do = still_to_do(states(plan.manifests, runs), retry_failed)
    refuse(found, to_do, work.force)
    if limit is not None and found.of(to_do).totals()["seconds"] > limit:
        warn("note: ", f"the budget of {budget} is expected to end before the plan does; the same command goes on")
    if to_do:
        _tell_of_turns(plan, to_do)
        where.warn_if_busy(machine, launcher)
    # what runs, and what shows it, is imported where something is run
    from suite.conduct.running import display
    from suite.conduct.running.session import Settings, Way, one_by_one, run_plan

    settings = Settings(
        root=runs, python=machine.python, pythons=machine.pythons, budget_seconds=limit, retry_failed=retry_failed
    )
    view = display.session_view(is_json(), is_crowd=parallel > 1 or bool(plan.seats))
    way: Way = one_by_one
    if parallel > 1:
        way = partial(side_by_side, slots=Slots(machine.device_names, parallel))
    elif plan.seats:
        from suite.conduct.running.at_once import in_turns

        way = partial(in_turns, group=partial(start_of, seats=plan.seats))
    work_on = partial(run_plan, settings=settings, launcher=launcher, view=view, way=way)
    told: dict[str, Any] = {}
    reached: Iterable[str] = ()
    if rule is None:
        summary = work_on(plan)
    else:
        plan, summary, found_out = follow(Pursuit(plan.firsts, rule, runs, view, plan.seats), plan, work_on)
        told, reached = {"precision": found_out}, lines(found_out, rule)
    facts = {"plan": plan.id, **summary.model_dump(mode="json"), **told}
    answer(facts, lambda: display.print_summary(summary, plan, runs, reached))
    failed = summary.failed or summary.failed_before
    return INTERRUPTED if summary.interrupted else RUN_FAILED if failed else DONE


@command("print the study and its answer as JSON")
def tune(
    *,
    work: Work,
    ranks: str | None = option("number of ranks, or all", panel="Work"),
    device: Device = None,
    budget: str = option("seconds of each backend's trials on each of its devices", "30m", panel="Measuring"),
    knob: Names = option("turn this knob alone; repeat for several [default: all that a stack has]"),
    starts: int = option("starts in which the winners are measured again", 3, min=2, panel="Measuring"),
    runs: Path = option("folder of the study", Path("tuned"), panel="Output"),
    where: Where,
) -> int:
    """Search each backend's own layouts and knobs under equal budgets, and measure the winners again in turns.

    \b
    suite tune --backend deepspeed --backend megatron --size 1M --budget 10m
    suite tune --size 1M --zero 1 --zero 3 --knob zero_stage --budget 5m

    Work is never turned: lengths, samples, algorithm, precision, optimizer and loss stay, and losses are compared with
    those of the equal-config row. --iterations are those of a trial's longest run and of each run of a winner. An
    option of a layout that is given limits its values. The same command goes on where it was interrupted.
    """
    from suite.conduct.running import display
    from suite.conduct.running.session import Settings
    from suite.tune.course import Asked, Course
    from suite.tune.knobs import MICRO_BATCH, THREADS
    from suite.tune.show import verdict_lines

    given = {"--track": work.track, "--profile": work.profile, "--until or --difference": work.stopping}
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} means nothing to suite tune; leave it out")
    machine, launcher = where.open(device or ("cuda" if work.is_for_gpus else "auto"), work.backends)
    work = work.on(machine)
    requests = work.requests(machine, rank_counts([] if ranks is None else [ranks], machine.max_ranks))
    request = requests[0]
    if len(requests) > 1 or max(map(len, (request.sizes, request.ranks, request.scalings))) > 1:
        raise UsageError("suite tune searches one size on one number of ranks: name one --size, --ranks and --scaling")
    typed = {MICRO_BATCH: work.micro_batch, THREADS: work.threads}
    fixed = tuple(name for name, value in typed.items() if value is not None)
    asked = Asked(request, work.iterations, tuple(knob or ()), fixed, seconds("--budget", budget), starts)
    course = Course(asked, machine, runs)
    where.warn_if_busy(machine, launcher)
    settings = Settings(root=runs, python=machine.python, pythons=machine.pythons)
    turning = _turning(None, None, machine, launcher, 1)
    if course.run(settings, launcher, turning, display.session_view(is_json(), is_crowd=True)):
        say(f"interrupted: the study in {runs} is kept, and the same command goes on", err=True)
        return INTERRUPTED
    end = f"suite report {quote(str(runs))} -o report.md writes what each knob gave and how the searches went"
    facts = course.study.model_dump(mode="json", by_alias=True)
    answer(facts, (*course.notes, *verdict_lines(course.study), end))
    return DONE


def _turning(turns: str | None, length: int | None, machine: Machine, launcher: Launcher, runs_at_once: int) -> Turning:
    """What the options ask for, and what speaks against it here. Raises UsageError."""
    if turns not in (None, "iterations", "rounds"):
        raise UsageError(f"--turns is iterations or rounds, not {turns!r}")
    if length is not None and turns == "rounds":
        raise UsageError("--turn-length is of turns by iteration; leave it out with --turns rounds")
    asked = cast('Literal["iterations", "rounds"] | None', turns or (None if length is None else "iterations"))
    refused = turns_refused(launcher) if runs_at_once == 1 else "--parallel lets runs work at the same time"
    on_gpu = machine.device == "cuda"
    if on_gpu and asked is None:
        refused = refused or "none were taken on several GPUs yet; --turns iterations has rows take them"
    room = machine.device_memory_bytes if on_gpu else machine.host_memory_bytes
    return Turning(asked=asked, length=length, refused=refused, device_name=machine.device_name, room_bytes=room)


def _tell_of_turns(plan: Plan, to_do: Collection[str]) -> None:
    """Lines on standard error: why rows are run in rounds, and which runs have lost their partners."""
    for reason in plan.in_rounds:
        warn("note: ", f"rounds, not turns by iteration: {reason}")
    starts = [(start_of(manifest, plan.seats), manifest) for manifest in plan.manifests if manifest.hash in plan.seats]
    made = {start for start, manifest in starts if manifest.run.id not in to_do}
    alone = [manifest.run.id for start, manifest in starts if start in made and manifest.run.id in to_do]
    if alone:
        more = len({manifest.run.repeat for _, manifest in starts})
        warn(
            "note: ",
            f"{', '.join(alone)}: measured without rows that were measured before, so there is no ratio to them; "
            f"--repeats {2 * more} has all take turns {more} times more",
        )
