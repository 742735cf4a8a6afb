"""`suite plan` where placements are searched: the answer, its scaling curves, what a simulation says of the best."""

import json
from pathlib import Path
from typing import Any

from suite.cli.exits import DONE, GATE_NOT_MET
from suite.cli.options.declare import flag, group, option
from suite.cli.options.reading import print_json
from suite.planner.ask import Question, device_range
from suite.planner.curves import CurvePoint, curves
from suite.planner.parameters import Parameters
from suite.planner.search.request import USUAL_DEVICES, Wishes, answer, make_search, sensitivity
from suite.planner.show import answer_lines, curves_lines, sensitivity_lines
from suite.planner.simulate.explain import best_simulated, lines, trace_of
from suite.planner.simulate.stragglers import measured
from suite.spec.catalogue import Preset, PresetPoint
from suite.spec.terminal import UsageError, say_lines
from suite.spec.width import terminal_columns

Named = tuple[Preset, PresetPoint]


@group("Search")
class Searched:
    """What is looked for among layouts and placements."""

    placement: str | None = option(
        "search where vLLM stands too: on the devices that train, on others, or whichever is better",
        metavar="auto|colocated|split",
    )
    staleness: int | None = option("publications of weights that samples may be behind at most, 0 or 1 [default: 1]")
    target: str | None = option(
        "find the fewest devices, or the cheapest, for '50 samples/s', '20000 tokens/s' or '60 s/iteration'",
        metavar="RATE",
    )
    deadline: str | None = option("the same for --iterations until then: 90min, 24h, 3d", metavar="TIME")
    iterations: int | None = option("iterations to do until --deadline")
    objective: str = option("what to rank layouts by", "throughput")
    price: list[str] | None = option("money per device and hour; repeat for several kinds", metavar="[NAME=]MONEY")
    checkpoint: float | None = option("of one checkpoint, for goodput", metavar="SECONDS")
    restart: float | None = option("from a failure to the next step", metavar="SECONDS")
    min_devices: bool = flag("find the fewest devices that fit")
    max_batch: bool = flag("find the largest micro batch that fits")
    scale: str | None = option("show a scaling curve over this range of devices, e.g. 8..16384")
    top: int = option("number of layouts to show", 8)
    simulate: bool = flag("simulate the best one: seconds by cause")
    trace: Path | None = option("write the simulation as a trace for Perfetto or Chrome")
    sensitivity: bool = flag("say what would change the answer")
    stragglers: list[Path] | None = option("draw slow ranks as finished runs in this folder show them; repeat")


def search(
    questions: list[Question],
    wishes: Wishes,
    generation: str | None,
    named: Named | None,
    wanted: Searched,
    as_json: bool,
) -> int:
    """Print the answer; its exit code."""
    most_only = wishes.target is not None or wishes.deadline is not None
    devices = () if most_only else wishes.devices  # under a target they are the most that are looked at
    samples_on = named[1].ranks if named else (devices or (USUAL_DEVICES,))[0]
    asked = make_search(questions, samples_on, wishes, generation)
    columns = terminal_columns()
    if wanted.scale is not None:
        counts, device = device_range(wanted.scale), asked.questions[0].hardware.name
        best = curves(asked.on_first_device, counts, questions[0].workload, device)
        return show_curves(questions[0], {"best": best}, counts, as_json)
    found = answer(asked, wishes)
    body: dict[str, Any] = {"search": {**found.model_dump(mode="json"), "met": found.met}}
    say_lines(answer_lines(found, columns) if not as_json else ())
    if wanted.sensitivity:
        changes = sensitivity(asked, wishes, found)
        body["sensitivity"] = [change.model_dump(mode="json") for change in changes]
        say_lines(sensitivity_lines(changes, columns) if not as_json else ())
    if (wanted.simulate or wanted.trace or wanted.stragglers) and found.options:
        slow = measured(wanted.stragglers) if wanted.stragglers else None
        simulated = best_simulated(asked, found, slow)
        body["simulated"] = {"seconds": simulated.seconds, "causes": simulated.causes}
        say_lines(("", *lines(simulated, found.options[0].seconds, slow, columns)) if not as_json else ())
        if wanted.trace is not None:
            try:
                wanted.trace.write_text(json.dumps(trace_of(simulated)), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"--trace {wanted.trace} cannot be written: {error.strerror or error}") from error
    if as_json:
        print_json(body)
    return DONE if found.met else GATE_NOT_MET


def show_curves(asked: Question, made: dict[str, list[CurvePoint]], counts: list[int], as_json: bool) -> int:
    """Scaling curves by backend, or of the best of them; the exit code."""
    if as_json:
        print_json({"curves": {name: [point.model_dump(mode="json") for point in some] for name, some in made.items()}})
    say_lines(curves_lines(asked, made, counts, terminal_columns()) if not as_json else ())
    return DONE


def checked_rows(files: list[Path], parameters: Parameters, as_json: bool) -> int:
    """Compare predictions with published rows. Readers of tables that others published stand beside the package, in
    tools/planner of a checkout. UsageError where there is none."""
    try:
        from tools.planner.check import check_lines, run_check
    except ModuleNotFoundError as error:
        raise UsageError(
            "--check reads published tables with tools/planner of the repository, which an installed package lacks: "
            "run it in a checkout"
        ) from error
    result = run_check(files, parameters)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        say_lines(check_lines(result))
    return DONE
