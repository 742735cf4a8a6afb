"""`suite plan`: will it fit, how fast will it be, what will it cost - before any device is booked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from suite.cli.exits import DONE, GATE_NOT_MET, command
from suite.cli.options import completion
from suite.cli.options.fields import WorkloadOptions, workload_changes
from suite.cli.options.groups import takes_groups
from suite.cli.options.plan_search import Output, checked_rows, require_folders, search, write
from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.cli.options.plan_search import Named
    from suite.planner.ask import Cluster, Question
    from suite.planner.parameters import Parameters
    from suite.planner.space import Manner

Paths = list[Path] | None


class Asked(NamedTuple):
    """The work that is named, and what is changed of it."""

    named: Named | None
    workload: str | None
    searched: bool
    scaling: str
    samples: int | None
    changes: Any


AS_THE_WORKLOAD = WorkloadOptions()
USUAL_DEVICE = "A100-SXM-80GB"


@command
@takes_groups
def plan(
    files: Annotated[
        Paths, typer.Argument(metavar="FILE", help="with --check: more files or folders in the published format")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="model size (see `suite sizes`)", autocompletion=completion.sizes, rich_help_panel="Work"),
    ] = None,
    shape: Annotated[
        Path | None, typer.Option(help="shape file: YAML, or a Hugging Face config.json", rich_help_panel="Work")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="plan the work of a preset on its devices, with its engine (see `suite sizes`)",
            autocompletion=completion.presets,
            rich_help_panel="Work",
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="accelerator of the catalogue, e.g. H100-SXM-80GB; H100 is enough; repeat, or any, to compare "
            "under --target [default: A100-SXM-80GB, the preset's, or any under --target]",
            autocompletion=completion.accelerators,
            rich_help_panel="Where it runs",
        ),
    ] = None,
    devices: Annotated[
        list[int] | None,
        typer.Option(
            help="number of devices, 1 to 16384; repeat to compare; the most under --target "
            "[default: 8, or the preset's]",
            rich_help_panel="Where it runs",
        ),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="backend; repeat for several [default: deepspeed and megatron]",
            autocompletion=completion.backends,
            rich_help_panel="Work",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            help="devices of one node of your cluster [default: the maker's]", rich_help_panel="Where it runs"
        ),
    ] = None,
    nic: Annotated[
        float | None,
        typer.Option(
            metavar="GBIT/S",
            help="network card of each device, 400 for 400 Gb/s [default: the maker's]",
            rich_help_panel="Where it runs",
        ),
    ] = None,
    link: Annotated[
        float | None,
        typer.Option(
            metavar="GB/S",
            help="link between devices of a node, each direction, 450 for NVLink 4 [default: the maker's]",
            rich_help_panel="Where it runs",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            help="work of an iteration [default: trlx-ds-chat, grpo where engines are searched, or the preset's]",
            autocompletion=completion.workloads,
            rich_help_panel="Work",
        ),
    ] = None,
    samples_per_iteration: Annotated[
        int | None,
        typer.Option(help="samples of an iteration in all, on however many devices", rich_help_panel="Work"),
    ] = None,
    scaling: Annotated[
        str, typer.Option(help="weak (samples per device fixed) or strong (in all)", rich_help_panel="Work")
    ] = "weak",
    changes: WorkloadOptions = AS_THE_WORKLOAD,  # type: ignore[valid-type]
    generation: Annotated[
        str | None,
        typer.Option(
            metavar="hf|vllm",
            help="the training stack's own loop, or vLLM [default: hf; vllm where a placement is searched]",
            rich_help_panel="Work",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="auto|colocated|split",
            help="search where vLLM stands too: on the devices that train, on others, or whichever is better",
            rich_help_panel="Search",
        ),
    ] = None,
    staleness: Annotated[
        int | None,
        typer.Option(
            help="publications of weights that samples may be behind at most, 0 or 1 [default: 1]",
            rich_help_panel="Search",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="find the fewest devices, or the cheapest, for '50 samples/s', '20000 tokens/s' or '60 s/iteration'",
            rich_help_panel="Search",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="the same for --iterations until then: 90min, 24h, 3d",
            rich_help_panel="Search",
        ),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="iterations to do until --deadline", rich_help_panel="Search")
    ] = None,
    engine_sleep: Annotated[
        bool,
        typer.Option("--engine-sleep", help="vLLM frees its memory while the policy trains", rich_help_panel="Work"),
    ] = False,
    packing: Annotated[
        bool, typer.Option("--packing", help="uneven samples end to end, without padding", rich_help_panel="Work")
    ] = False,
    balance: Annotated[
        bool, typer.Option("--balance", help="equal tokens on every replica", rich_help_panel="Work")
    ] = False,
    objective: Annotated[str, typer.Option(help="what to rank layouts by", rich_help_panel="Search")] = "throughput",
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]MONEY", help="money per device and hour; repeat for several kinds", rich_help_panel="Search"
        ),
    ] = None,
    min_devices: Annotated[
        bool, typer.Option("--min-devices", help="find the fewest devices that fit", rich_help_panel="Search")
    ] = False,
    max_batch: Annotated[
        bool, typer.Option("--max-batch", help="find the largest micro batch that fits", rich_help_panel="Search")
    ] = False,
    scale: Annotated[
        str | None,
        typer.Option(help="show a scaling curve over this range of devices, e.g. 8..16384", rich_help_panel="Search"),
    ] = None,
    top: Annotated[int, typer.Option(help="number of layouts to show", rich_help_panel="Search")] = 8,
    check: Annotated[
        Paths,
        typer.Option(
            help="compare predictions with the published rows in this file or folder; repeat",
            rich_help_panel="Check and calibrate",
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="correct predictions by the runs in this results folder", rich_help_panel="Check and calibrate"
        ),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="simulate the best arrangement: seconds by cause", rich_help_panel="Search"),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="write the simulation as a trace for Perfetto or Chrome", rich_help_panel="Search"),
    ] = None,
    stragglers: Annotated[
        Paths,
        typer.Option(
            help="draw slow ranks as finished runs in this folder show them; repeat", rich_help_panel="Search"
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="write the chart to this file", rich_help_panel="Output")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON", rich_help_panel="Output")] = False,
) -> int:
    """Predict memory, time and cost of layouts before any run: all that fit, best first, and what is missing elsewhere.

    With --check, predict published measurements and print the errors instead.
    """
    from suite.planner.ask import cluster_of
    from suite.planner.parameters import load_parameters
    from suite.planner.search.request import Wishes, manner_of, preset_of
    from suite.planner.search.wishes import read_prices
    from suite.spec.base import UsageError

    require_folders(trace=trace, svg=svg)
    parameters = load_parameters()
    if check:
        return checked_rows([*check, *(files or [])], parameters, svg, as_json)
    if files:
        raise UsageError(f"{files[0]} is not needed: files are compared with --check")
    if objective not in ("throughput", "cost", "latency"):
        raise UsageError(f"--objective is throughput, cost or latency, not {objective!r}")
    if top < 1:
        raise UsageError("--top is at least 1")
    prices = read_prices(price or [])
    named = None if preset is None else preset_of(preset, size)
    wished = (target, deadline) != (None, None)
    wishes = Wishes(
        placement=placement,
        staleness=staleness,
        target=target,
        deadline=deadline,
        iterations=iterations,
        devices=tuple(devices or ([named[1].ranks] if named and not wished else [])),
        kinds=tuple(device or (["any"] if wished else [named[0].written_for if named else USUAL_DEVICE])),
        objective=objective,  # type: ignore[arg-type]
        prices=prices,
        top=top,
    )
    output = Output(scale, simulate, trace, stragglers or [], svg, as_json)
    searches = wishes.any or named is not None or simulate or trace is not None or bool(stragglers)
    generates = "vllm" if searches and not named else "hf"
    manner = manner_of(generation, generates, engine_sleep, packing, balance, named[1] if named else None)
    work = Asked(named, workload, searches, scaling, samples_per_iteration, changes)
    cluster = cluster_of(gpus_per_node, nic, link)
    backends = backend or (list(named[0].backends) if named else ["deepspeed", "megatron"])
    first = wishes.kinds[0] if wishes.kinds[0].lower() != "any" else USUAL_DEVICE
    questions = [_question(size, shape, first, name, work, parameters, calibrate, manner, cluster) for name in backends]
    if searches and (min_devices or max_batch):
        raise UsageError(
            "--min-devices and --max-batch are of layouts alone: leave out --placement, --target and --preset"
        )
    if searches:
        return search(questions, wishes, generation, named, output)
    if scale is not None:
        return _scale(questions, scale, as_json)
    counts: list[int] | None = devices
    plans: list[dict[str, Any]] = []
    fits = False
    for asked in questions:
        money = prices.of(asked.hardware.name)
        fits |= _answer(asked, counts, objective, money, top, min_devices, max_batch, plans, svg, as_json)
    if as_json:
        from suite.cli.options.reading import print_json

        print_json({"plans": plans})
    return DONE if fits else GATE_NOT_MET


def _question(
    size: str | None,
    shape: Path | None,
    device: str,
    backend: str,
    work: Asked,
    parameters: Parameters,
    calibrate: Path | None,
    manner: Manner,
    cluster: Cluster,
) -> Question:
    from suite.cli.options.reading import checked
    from suite.planner.ask import question
    from suite.planner.calibrate import calibrated
    from suite.planner.search.request import model_of, work_of

    preset, point = work.named or (None, None)
    model = model_of(size, shape, point)
    own = work_of(work.workload, preset, point, model, work.searched)
    given: dict[str, Any] = {**workload_changes(work.changes), "scaling": work.scaling}
    if work.samples is not None:
        given |= {"rollouts": work.samples, "scaling": "strong"}
    done = checked(lambda: own.changed(given))
    asked = question(model, done, device, backend, parameters, manner, cluster)
    return asked if calibrate is None else calibrated(asked, calibrate)


def _answer(
    asked: Question,
    counts: list[int] | None,
    objective: Any,
    price: float | None,
    top: int,
    min_devices: bool,
    max_batch: bool,
    plans: list[dict[str, Any]],
    svg: Path | None,
    as_json: bool,
) -> bool:
    from suite.planner.ask import fewest_devices, largest_micro_batch, without_offload
    from suite.planner.show import fewest_text, plan_lines, text_lines
    from suite.report.formatting.width import terminal_columns

    fewest = fewest_devices(asked) if min_devices else None
    use = [fewest] if fewest is not None else (counts or [8])
    result = asked.plan(use, objective, price, top)
    extra: dict[str, Any] = {}
    if min_devices:
        extra["min_devices"] = fewest
        extra["min_devices_without_offload"] = fewest_devices(without_offload(asked))
    if max_batch:
        extra["max_micro_batch"] = largest_micro_batch(asked, use[0])
    if as_json:
        plans.append({**result.model_dump(mode="json"), **extra})
    else:
        columns = terminal_columns()
        for line in plan_lines(result, columns):
            say(line)
        if min_devices:
            for line in text_lines(fewest_text(result, fewest, extra["min_devices_without_offload"]), columns):
                say(line)
        for label, micro in extra.get("max_micro_batch", {}).items():
            say(f"largest micro batch {micro:>5}  {label}")
        say("")
    if svg is not None and (result.options or result.nearest):
        from suite.planner.chart import memory_chart

        shown = result.options or [option for option in [result.nearest] if option is not None]
        title = f"{result.size} on {result.device}, {result.backend}: memory by part"
        target = svg if not plans or len(plans) < 2 else svg.with_stem(f"{svg.stem}-{result.backend}")
        write(target, memory_chart(shown, title))
    return bool(result.options)


def _scale(questions: list[Question], text: str, as_json: bool) -> int:
    from suite.cli.options.plan_search import show_curves
    from suite.planner.ask import device_range
    from suite.planner.curves import curves, look_at

    counts = device_range(text)
    made = {
        asked.profile.name: curves(look_at(asked), counts, asked.workload, asked.hardware.name) for asked in questions
    }
    show_curves(questions[0], made, counts, as_json)
    return DONE
