"""`suite tune`: each stack at its best, under equal budgets, with every trial kept."""

from pathlib import Path
from shlex import quote

from suite.cli.command import command, option
from suite.cli.main import INTERRUPTED
from suite.cli.options.launchers import Device, Where
from suite.cli.options.reading import rank_counts, seconds
from suite.cli.options.work import Names, Work
from suite.cli.output import DONE, is_json, print_json
from suite.spec.terminal import UsageError, say, say_lines


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
    from suite.cli.options.check import turning_here
    from suite.conduct.running import display
    from suite.conduct.running.ledger import Settings
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
    turning = turning_here(None, None, machine, launcher, 1)
    if course.run(settings, launcher, turning, display.session_view(is_json(), is_crowd=True)):
        say(f"interrupted: the study in {runs} is kept, and the same command goes on", err=True)
        return INTERRUPTED
    if is_json():
        print_json(course.study.model_dump(mode="json", by_alias=True))
        return DONE
    say_lines((*course.notes, *verdict_lines(course.study)))
    say(f"suite report {quote(str(runs))} -o report.md writes what each knob gave and how the searches went")
    return DONE
