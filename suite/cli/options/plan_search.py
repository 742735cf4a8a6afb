"""`suite plan` where placements are searched: the answer, its scaling curves, what a simulation says of the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from suite.cli.exits import DONE, GATE_NOT_MET
from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.planner.ask import Question
    from suite.planner.search.answer import Answer, Search
    from suite.planner.search.request import Wishes
    from suite.planner.simulate.iteration import Simulated
    from suite.planner.simulate.stragglers import Stragglers
    from suite.planner.space import Manner
    from suite.spec.presets import Preset, PresetPoint

    Named = tuple[Preset, PresetPoint]


class Output(NamedTuple):
    """Where the answer goes besides the terminal, and whether the best of it is simulated."""

    scale: str | None
    simulate: bool
    trace: Path | None
    stragglers: list[Path]
    svg: Path | None
    as_json: bool


def search(
    questions: list[Question],
    wishes: Wishes,
    generation: str | None,
    named: Named | None,
    output: Output,
) -> int:
    """Print the answer; its exit code."""
    from suite.cli.options.reading import print_json
    from suite.planner.search.curves import curve_lines, curves
    from suite.planner.search.request import USUAL_DEVICES, answer, make_search
    from suite.planner.search.show import answer_lines
    from suite.report.formatting.width import terminal_columns

    samples_on = named[1].ranks if named else (wishes.devices or (USUAL_DEVICES,))[0]
    asked = make_search(questions, samples_on, wishes, generation)
    columns = terminal_columns()
    if output.scale is not None:
        made = curves(asked, output.scale, questions[0].workload)
        for line in curve_lines(asked, made, columns) if not output.as_json else ():
            say(line)
        if output.as_json:
            print_json({"curves": [point.model_dump(mode="json") for point in made]})
        return DONE
    found = answer(asked, wishes)
    body: dict[str, Any] = {"search": {**found.model_dump(mode="json"), "met": found.met}}
    for line in answer_lines(found, columns) if not output.as_json else ():
        say(line)
    if (output.simulate or output.trace or output.stragglers) and found.options:
        simulated, slow = _simulated(asked, found, output)
        body["simulated"] = {"seconds": simulated.seconds, "causes": simulated.causes}
        _show(simulated, slow, found, output, columns)
    if output.as_json:
        print_json(body)
    return DONE if found.met else GATE_NOT_MET


def _simulated(asked: Search, found: Answer, output: Output) -> tuple[Simulated, Stragglers | None]:
    """The best arrangement, task by task. UsageError where it has too many."""
    from suite.planner.search.answer import found_again
    from suite.planner.simulate.explain import setting_of
    from suite.planner.simulate.iteration import TooLarge, simulate
    from suite.planner.simulate.stragglers import measured
    from suite.spec.base import UsageError

    slow = measured(output.stragglers) if output.stragglers else None
    columns, question, index = found_again(asked, found.options[0])
    setting = setting_of(columns, question, asked.work, index, slow is not None)
    try:
        return simulate(setting, slow), slow
    except TooLarge as error:
        raise UsageError(f"{error}: simulate fewer devices, or larger micro batches (--micro-batch)") from error


def _show(simulated: Simulated, slow: Stragglers | None, found: Answer, output: Output, columns: int | None) -> None:
    import json

    from suite.planner.simulate.explain import causes_chart, lines
    from suite.planner.simulate.trace import trace_of

    best = found.options[0]
    if not output.as_json:
        say("")
        for line in lines(simulated, best.seconds, slow, columns):
            say(line)
    if output.svg is not None:
        title = f"{found.size} on {best.devices} x {best.device}: seconds of an iteration by cause, simulated"
        write(output.svg, causes_chart([(best.label, simulated)], title))
    if output.trace is not None:
        write(output.trace, json.dumps(trace_of(simulated)))


def require_folders(**outputs: Path | None) -> None:
    """Before anything is worked out and printed. ``outputs``: files to write, by option. UsageError where no folder is
    there for one."""
    from suite.spec.base import UsageError

    for option, path in outputs.items():
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"--{option} {path} cannot be written: there is no folder {path.parent}")


def write(path: Path, text: str) -> None:
    """Write a file that the user named. UsageError where that is not possible."""
    from suite.spec.base import UsageError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def manner_of(generation: str, engine_sleep: bool, packing: bool, balance: bool) -> Manner:
    """How samples are generated and passed. UsageError for what does not go together."""
    from suite.planner.space import Manner
    from suite.spec.base import UsageError

    if generation not in ("hf", "vllm"):
        raise UsageError(f"--generation is hf or vllm, not {generation!r}")
    if engine_sleep and generation == "hf":
        raise UsageError("only an engine of its own sleeps while the policy trains: --generation vllm")
    return Manner("vllm" if generation == "vllm" else "hf", engine_sleep, packing, balance)


def with_preset(manner: Manner, point: PresetPoint, generation: str | None) -> Manner:
    """The preset's way of generating and passing samples, with what was given besides."""
    from dataclasses import replace

    from suite.planner.search.request import preset_manner

    own = preset_manner(point)
    chosen = own if generation is None else replace(own, generation=manner.generation, engine_sleep=manner.engine_sleep)
    return replace(chosen, packing=manner.packing or own.packing, balance=manner.balance or own.balance)
