"""`suite plan`: will it fit, how fast will it be, what will it cost - before any device is booked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from suite.cli.exits import DONE, GATE_NOT_MET, command
from suite.cli.options import completion
from suite.cli.options.fields import WorkloadOptions, takes_groups, workload_changes
from suite.cli.options.plan_search import checked_rows, search
from suite.cli.options.reading import checked, print_json, require_place
from suite.spec.terminal import UsageError, say

if TYPE_CHECKING:
    from suite.cli.options.plan_search import Named
    from suite.planner.ask import Question
    from suite.planner.parameters import Parameters
    from suite.planner.space import Manner as SampleManner

Paths = list[Path] | None
USUAL_DEVICE = "A100-SXM-80GB"


@dataclass(frozen=True)
class What:
    """What is planned, by its name."""

    HEADING: ClassVar = "Work"

    size: Annotated[
        str | None, typer.Option(help="model size (see `suite sizes`)", autocompletion=completion.sizes)
    ] = None
    shape: Annotated[Path | None, typer.Option(help="shape file: YAML, or a Hugging Face config.json")] = None
    preset: Annotated[
        str | None,
        typer.Option(
            help="plan the work of a preset on its devices, with its engine (see `suite sizes`)",
            autocompletion=completion.presets,
        ),
    ] = None
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="backend; repeat for several [default: deepspeed and megatron]", autocompletion=completion.backends
        ),
    ] = None
    workload: Annotated[
        str | None,
        typer.Option(
            help="work of an iteration [default: trlx-ds-chat, grpo where engines are searched, or the preset's]",
            autocompletion=completion.workloads,
        ),
    ] = None
    samples_per_iteration: Annotated[
        int | None, typer.Option(help="samples of an iteration in all, on however many devices")
    ] = None
    scaling: Annotated[str, typer.Option(help="weak (samples per device fixed) or strong (in all)")] = "weak"


@dataclass(frozen=True)
class Manner:
    """How samples are generated and put into batches."""

    HEADING: ClassVar = "Work"

    generation: Annotated[
        str | None,
        typer.Option(
            metavar="hf|vllm",
            help="the training stack's own loop, or vLLM [default: hf; vllm where a placement is searched]",
        ),
    ] = None
    engine_sleep: Annotated[
        bool, typer.Option("--engine-sleep", help="vLLM frees its memory while the policy trains")
    ] = False
    packing: Annotated[bool, typer.Option("--packing", help="uneven samples end to end, without padding")] = False
    balance: Annotated[bool, typer.Option("--balance", help="equal tokens on every replica")] = False
    fp8: Annotated[bool, typer.Option("--fp8", help="train, and generate with vLLM, in fp8")] = False
    reward_seconds: Annotated[
        float, typer.Option(min=0, max=86400, help="of each sample's reward or verifier, one after another")
    ] = 0.0
    tool_seconds: Annotated[
        float, typer.Option(min=0, max=86400, help="that a sample waits for tools, in all of its turns")
    ] = 0.0


@dataclass(frozen=True)
class Work(Manner, WorkloadOptions, What):
    """All that says what is planned; the fields of the workload follow from their declarations."""


@dataclass(frozen=True)
class Place:
    """The devices, and what joins them."""

    HEADING: ClassVar = "Where it runs"

    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="accelerator of the catalogue, e.g. H100-SXM-80GB; H100 is enough; repeat, or any, to compare "
            "under --target [default: A100-SXM-80GB, the preset's, or any under --target]",
            autocompletion=completion.accelerators,
        ),
    ] = None
    devices: Annotated[
        list[int] | None,
        typer.Option(
            help="number of devices, 1 to 16384; repeat to compare; the most under --target "
            "[default: 8, or the preset's]"
        ),
    ] = None
    generation_device: Annotated[
        str | None, typer.Option(help="another kind that generates", autocompletion=completion.accelerators)
    ] = None
    gpus_per_node: Annotated[
        int | None, typer.Option(help="devices of one node of your cluster [default: the maker's]")
    ] = None
    nic: Annotated[
        float | None,
        typer.Option(metavar="GBIT/S", help="network card of each device, 400 for 400 Gb/s [default: the maker's]"),
    ] = None
    link: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S",
            help="link between devices of a node, each direction, 450 for NVLink 4 [default: the maker's]",
        ),
    ] = None


@dataclass(frozen=True)
class Searched:
    """What is looked for among layouts and placements."""

    HEADING: ClassVar = "Search"

    placement: Annotated[
        str | None,
        typer.Option(
            metavar="auto|colocated|split",
            help="search where vLLM stands too: on the devices that train, on others, or whichever is better",
        ),
    ] = None
    staleness: Annotated[
        int | None, typer.Option(help="publications of weights that samples may be behind at most, 0 or 1 [default: 1]")
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="find the fewest devices, or the cheapest, for '50 samples/s', '20000 tokens/s' or '60 s/iteration'",
        ),
    ] = None
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="the same for --iterations until then: 90min, 24h, 3d")
    ] = None
    iterations: Annotated[int | None, typer.Option(help="iterations to do until --deadline")] = None
    objective: Annotated[str, typer.Option(help="what to rank layouts by")] = "throughput"
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]MONEY", help="money per device and hour; repeat for several kinds"),
    ] = None
    checkpoint: Annotated[float | None, typer.Option(metavar="SECONDS", help="of one checkpoint, for goodput")] = None
    restart: Annotated[float | None, typer.Option(metavar="SECONDS", help="from a failure to the next step")] = None
    min_devices: Annotated[bool, typer.Option("--min-devices", help="find the fewest devices that fit")] = False
    max_batch: Annotated[bool, typer.Option("--max-batch", help="find the largest micro batch that fits")] = False
    scale: Annotated[
        str | None, typer.Option(help="show a scaling curve over this range of devices, e.g. 8..16384")
    ] = None
    top: Annotated[int, typer.Option(help="number of layouts to show")] = 8
    simulate: Annotated[bool, typer.Option("--simulate", help="simulate the best one: seconds by cause")] = False
    trace: Annotated[Path | None, typer.Option(help="write the simulation as a trace for Perfetto or Chrome")] = None
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="say what would change the answer")] = False
    stragglers: Annotated[
        Paths, typer.Option(help="draw slow ranks as finished runs in this folder show them; repeat")
    ] = None


@dataclass(frozen=True)
class Measured:
    """Measurements beside predictions."""

    HEADING: ClassVar = "Check and calibrate"

    check: Annotated[
        Paths, typer.Option(help="compare predictions with the published rows in this file or folder; repeat")
    ] = None
    calibrate: Annotated[Path | None, typer.Option(help="correct predictions by the runs in this folder")] = None


USUAL_WORK, USUAL_PLACE, ALL_THAT_FIT, ALONE = Work(), Place(), Searched(), Measured()


@command
@takes_groups
def plan(
    files: Annotated[
        Paths, typer.Argument(metavar="FILE", help="with --check: more files or folders in the published format")
    ] = None,
    work: Work = USUAL_WORK,
    place: Place = USUAL_PLACE,
    wanted: Searched = ALL_THAT_FIT,
    measured: Measured = ALONE,
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> int:
    """Predict memory, time and cost of layouts before any run: all that fit, best first, and what is missing elsewhere.

    With --check, predict published measurements and print the errors instead.
    """
    from suite.planner.ask import cluster_of
    from suite.planner.parameters import load_parameters
    from suite.planner.search.request import Wishes, manner_of, preset_of
    from suite.planner.search.wishes import pauses_of, read_prices

    parameters = load_parameters()
    if measured.check:
        return checked_rows([*measured.check, *(files or [])], parameters, as_json)
    if files:
        raise UsageError(f"{files[0]} is not needed: files are compared with --check")
    if wanted.objective not in ("throughput", "cost", "latency"):
        raise UsageError(f"--objective is throughput, cost or latency, not {wanted.objective!r}")
    if wanted.top < 1:
        raise UsageError("--top is at least 1")
    require_place("--trace", wanted.trace)
    named = None if work.preset is None else preset_of(work.preset, work.size)
    wished = (wanted.target, wanted.deadline) != (None, None)
    wishes = Wishes(
        placement=wanted.placement,
        staleness=wanted.staleness,
        target=wanted.target,
        deadline=wanted.deadline,
        iterations=wanted.iterations,
        devices=tuple(place.devices or ([named[1].ranks] if named and not wished else [])),
        kinds=tuple(place.device or (["any"] if wished else [named[0].written_for if named else USUAL_DEVICE])),
        objective=wanted.objective,  # type: ignore[arg-type]
        prices=read_prices(wanted.price or []),
        top=wanted.top,
        pauses=pauses_of(wanted.checkpoint, wanted.restart),
        generation_device=place.generation_device,
    )
    simulates = wanted.simulate or wanted.trace is not None or wanted.sensitivity or bool(wanted.stragglers)
    searches = wishes.any or named is not None or simulates
    generates = "vllm" if searches and not named else "hf"
    point = named[1] if named else None
    manner = manner_of(work.generation, generates, work.engine_sleep, work.packing, work.balance, point)
    cluster = cluster_of(place.gpus_per_node, place.nic, place.link)
    backends = work.backend or (list(named[0].backends) if named else ["deepspeed", "megatron"])
    first = wishes.kinds[0] if wishes.kinds[0].lower() != "any" else USUAL_DEVICE
    questions = [
        _question(work, named, first, name, parameters, measured.calibrate, manner, cluster, searches)
        for name in backends
    ]
    if searches:
        if wanted.min_devices or wanted.max_batch:
            raise UsageError(
                "--min-devices and --max-batch are of layouts alone: leave out --placement, --target and --preset"
            )
        return search(questions, wishes, work.generation, named, wanted, as_json)
    if wanted.scale is not None:
        return _scale(questions, wanted.scale, as_json)
    plans: list[dict[str, Any]] = []
    fits = False
    for asked in questions:
        fits |= _answer(asked, place.devices, wishes.prices.of(asked.hardware.name), wanted, plans, as_json)
    if as_json:
        print_json({"plans": plans})
    return DONE if fits else GATE_NOT_MET


def _question(
    work: Work,
    named: Named | None,
    device: str,
    backend: str,
    parameters: Parameters,
    calibrate: Path | None,
    manner: SampleManner,
    cluster: dict[str, Any],
    searched: bool,
) -> Question:
    from suite.planner.ask import question
    from suite.planner.calibrate import calibrated
    from suite.planner.search.request import model_of, work_of

    preset, point = named or (None, None)
    model = model_of(work.size, work.shape, point)
    own = work_of(work.workload, preset, point, model, searched)
    given: dict[str, Any] = {**workload_changes(work), "scaling": work.scaling}
    if work.samples_per_iteration is not None:
        given |= {"rollouts": work.samples_per_iteration, "scaling": "strong"}
    done = checked(lambda: own.changed(given))
    asked = question(model, done, device, backend, parameters, manner, cluster, work.fp8)
    asked = replace(asked, reward=work.reward_seconds, tools=work.tool_seconds)
    return asked if calibrate is None else calibrated(asked, calibrate)


def _answer(
    asked: Question,
    counts: list[int] | None,
    price: float | None,
    wanted: Searched,
    plans: list[dict[str, Any]],
    as_json: bool,
) -> bool:
    from suite.planner.ask import fewest_devices, largest_micro_batch, without_offload
    from suite.planner.show import fewest_text, plan_lines, text_lines
    from suite.spec.width import terminal_columns
    from suite.tune.search import FROM_PLANNER

    fewest = fewest_devices(asked) if wanted.min_devices else None
    use = [fewest] if fewest is not None else (counts or [8])
    result = asked.plan(use, wanted.objective, price, wanted.top)  # type: ignore[arg-type]
    extra: dict[str, Any] = {}
    if wanted.min_devices:
        extra = {"min_devices": fewest, "min_devices_without_offload": fewest_devices(without_offload(asked))}
    if wanted.max_batch:
        extra["max_micro_batch"] = largest_micro_batch(asked, use[0])
    if as_json:
        plans.append({**result.model_dump(mode="json"), **extra})
    else:
        columns = terminal_columns()
        for line in plan_lines(result, columns):
            say(line)
        if result.options and wanted.objective == "throughput" and len(use) == 1:
            first = [f"{one.label} (micro batch {one.micro_batch})" for one in result.options[:FROM_PLANNER]]
            for line in text_lines(f"suite tune would try next after the stack's own: {'; '.join(first)}", columns):
                say(line)
        if wanted.min_devices:
            for line in text_lines(fewest_text(result, fewest, extra["min_devices_without_offload"]), columns):
                say(line)
        for label, micro in extra.get("max_micro_batch", {}).items():
            say(f"largest micro batch {micro:>5}  {label}")
        say("")
    return bool(result.options)


def _scale(questions: list[Question], text: str, as_json: bool) -> int:
    from suite.cli.options.plan_search import show_curves
    from suite.planner.ask import device_range
    from suite.planner.curves import curves, look_at

    counts = device_range(text)
    made = {
        asked.profile.name: curves(look_at(asked), counts, asked.workload, asked.hardware.name) for asked in questions
    }
    return show_curves(questions[0], made, counts, as_json)
