"""`suite plan`: will it fit, how fast will it be, what will it cost - before any device is booked."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from suite.cli.command import argument, checked, command, flag, group, offered, option, require_place
from suite.cli.options.fields import WorkloadOptions, workload_changes
from suite.cli.output import DONE, GATE_NOT_MET, answer
from suite.planner import ask, show
from suite.planner.ask import Question
from suite.planner.calibrate import calibrated
from suite.planner.curves import CurvePoint, curves, look_at
from suite.planner.parameters import Parameters, load_parameters
from suite.planner.search import request
from suite.planner.search.request import USUAL_DEVICES, Wishes
from suite.planner.search.wishes import pauses_of, read_prices
from suite.planner.simulate.explain import best_simulated, lines, trace_of
from suite.planner.simulate.stragglers import measured
from suite.spec.catalogue import PresetPoint
from suite.spec.terminal import UsageError
from suite.spec.width import terminal_columns
from suite.tune.search import FROM_PLANNER

Paths = list[Path] | None
USUAL_DEVICE = "A100-SXM-80GB"


@group("Work")
class What:
    """What is planned, by its name."""

    size: str | None = option("model size (see `suite sizes`)")
    shape: Path | None = option("shape file: YAML, or a Hugging Face config.json")
    preset: str | None = option("plan the work of a preset on its devices, with its engine (see `suite sizes`)")
    backend: list[str] | None = option("backend; repeat for several [default: deepspeed and megatron]")
    workload: str | None = option(
        "work of an iteration [default: trlx-ds-chat, grpo where engines are searched, or the preset's]"
    )
    samples_per_iteration: int | None = option("samples of an iteration in all, on however many devices")
    scaling: str = option("weak (samples per device fixed) or strong (in all)", "weak")


@group("Work")
class Work(WorkloadOptions, What):
    """And how samples are generated and put into batches; the fields of the workload follow from their declarations."""

    generation: str | None = option(
        "the training stack's own loop, or vLLM [default: hf; vllm where a placement is searched]", metavar="hf|vllm"
    )
    engine_sleep: bool = flag("vLLM frees its memory while the policy trains")
    packing: bool = flag("uneven samples end to end, without padding")
    balance: bool = flag("equal tokens on every replica")
    fp8: bool = flag("train, and generate with vLLM, in fp8")
    reward_seconds: float = option("of each sample's reward or verifier, one after another", 0.0, min=0, max=86400)
    tool_seconds: float = option("that a sample waits for tools, in all of its turns", 0.0, min=0, max=86400)


@group("Where it runs")
class Place:
    """The devices, and what joins them."""

    device: list[str] | None = option(
        "accelerator of the catalogue, e.g. H100-SXM-80GB; H100 is enough; repeat, or any, to compare "
        "under --target [default: A100-SXM-80GB, the preset's, or any under --target]",
        metavar="NAME",
        autocompletion=offered("spec.catalogue", "devices"),
    )
    devices: list[int] | None = option(
        "number of devices, 1 to 16384; repeat to compare; the most under --target [default: 8, or the preset's]"
    )
    generation_device: str | None = option("another kind that generates")
    gpus_per_node: int | None = option("devices of one node of your cluster [default: the maker's]")
    nic: float | None = option("network card of each device, 400 for 400 Gb/s [default: the maker's]", metavar="GBIT/S")
    link: float | None = option(
        "link between devices of a node, each direction, 450 for NVLink 4 [default: the maker's]", metavar="GB/S"
    )


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
    objective: str = option("what to rank layouts by", "throughput", metavar="throughput|cost|latency")
    price: list[str] | None = option("money per device and hour; repeat for several kinds", metavar="[NAME=]MONEY")
    checkpoint: float | None = option("of one checkpoint, for goodput", metavar="SECONDS")
    restart: float | None = option("from a failure to the next step", metavar="SECONDS")
    min_devices: bool = flag("find the fewest devices that fit")
    max_batch: bool = flag("find the largest micro batch that fits")
    scale: str | None = option("show a scaling curve over this range of devices, e.g. 8..16384", metavar="FROM..TO")
    top: int = option("number of layouts to show", 8)
    simulate: bool = flag("simulate the best one: seconds by cause")
    trace: Path | None = option("write the simulation as a trace for Perfetto or Chrome")
    sensitivity: bool = flag("say what would change the answer")
    stragglers: list[Path] | None = option("draw slow ranks as finished runs in this folder show them; repeat")

    @property
    def simulates(self) -> bool:
        return self.simulate or self.trace is not None or bool(self.stragglers)


@command("print as JSON")
def plan(
    *,
    files: Paths = argument("with --check: more files or folders in the published format", None, metavar="FILE"),
    work: Work,
    place: Place,
    wanted: Searched,
    check: Paths = option(
        "compare predictions with the published rows in this file or folder; repeat", panel="Check and calibrate"
    ),
    calibrate: Path | None = option("correct predictions by the runs in this folder", panel="Check and calibrate"),
) -> int:
    """Predict memory, time and cost of layouts before any run: all that fit, best first, and what is missing elsewhere.

    With --check, predict published measurements and print the errors instead.
    """
    parameters = load_parameters()
    if check:
        return _checked([*check, *(files or [])], parameters)
    if files:
        raise UsageError(f"{files[0]} is not needed: files are compared with --check")
    if wanted.objective not in ("throughput", "cost", "latency"):
        raise UsageError(f"--objective is throughput, cost or latency, not {wanted.objective!r}")
    if wanted.top < 1:
        raise UsageError("--top is at least 1")
    require_place("--trace", wanted.trace)
    named = None if work.preset is None else request.preset_of(work.preset, work.size)
    preset, point = named or (None, None)
    wished = (wanted.target, wanted.deadline) != (None, None)
    alike = ("placement", "staleness", "target", "deadline", "iterations", "objective", "top")
    wishes = Wishes(
        **{name: getattr(wanted, name) for name in alike},
        devices=tuple(place.devices or ([point.ranks] if point and not wished else [])),
        kinds=tuple(place.device or (["any"] if wished else [preset.written_for if preset else USUAL_DEVICE])),
        prices=read_prices(wanted.price or []),
        pauses=pauses_of(wanted.checkpoint, wanted.restart),
        generation_device=place.generation_device,
    )
    searches = wishes.any or named is not None or wanted.simulates or wanted.sensitivity
    generates = "vllm" if searches and not named else "hf"
    manner = request.manner_of(work.generation, generates, work.engine_sleep, work.packing, work.balance, point)
    cluster = ask.cluster_of(place.gpus_per_node, place.nic, place.link)
    backends = work.backend or (list(preset.backends) if preset else ["deepspeed", "megatron"])
    first = wishes.kinds[0] if wishes.kinds[0].lower() != "any" else USUAL_DEVICE
    model = request.model_of(work.size, work.shape, point)
    given: dict[str, Any] = {**workload_changes(work), "scaling": work.scaling}
    if work.samples_per_iteration is not None:
        given |= {"rollouts": work.samples_per_iteration, "scaling": "strong"}
    done = checked(lambda: request.work_of(work.workload, preset, point, model, searches).changed(given))
    questions = [ask.question(model, done, first, name, parameters, manner, cluster, work.fp8) for name in backends]
    questions = [replace(asked, reward=work.reward_seconds, tools=work.tool_seconds) for asked in questions]
    if calibrate is not None:
        questions = [calibrated(asked, calibrate) for asked in questions]
    if searches and (wanted.min_devices or wanted.max_batch):
        raise UsageError("--min-devices and --max-batch are of layouts: leave out --placement, --target and --preset")
    if searches:
        return _search(questions, wishes, work.generation, point, wanted)
    if wanted.scale is not None:
        counts = ask.device_range(wanted.scale)
        made = {
            asked.profile.name: curves(look_at(asked), counts, asked.workload, asked.hardware.name)
            for asked in questions
        }
        return _show_curves(questions[0], made, counts)
    plans: list[dict[str, Any]] = []
    told: list[str] = []
    for asked in questions:
        facts, text = _answer(asked, place.devices or [8], wishes.prices.of(asked.hardware.name), wanted)
        plans.append(facts)
        told += text
    answer({"plans": plans}, told)
    return DONE if any(each["options"] for each in plans) else GATE_NOT_MET


def _answer(
    asked: Question, counts: list[int], price: float | None, wanted: Searched
) -> tuple[dict[str, Any], list[str]]:
    """The plan of a backend: of the JSON, and as a terminal shows it."""
    fewest = ask.fewest_devices(asked) if wanted.min_devices else None
    use = counts if fewest is None else [fewest]
    result, columns = asked.plan(use, wanted.objective, price, wanted.top), terminal_columns()  # type: ignore[arg-type]
    facts, told = result.model_dump(mode="json"), [*show.plan_lines(result, columns)]
    if result.options and wanted.objective == "throughput" and len(use) == 1:
        first = [f"{one.label} (micro batch {one.micro_batch})" for one in result.options[:FROM_PLANNER]]
        told += show.text_lines(f"suite tune would try next after the stack's own: {'; '.join(first)}", columns)
    if wanted.min_devices:
        without = ask.fewest_devices(ask.without_offload(asked))
        facts |= {"min_devices": fewest, "min_devices_without_offload": without}
        told += show.text_lines(show.fewest_text(result, fewest, without), columns)
    if wanted.max_batch:
        largest = facts["max_micro_batch"] = ask.largest_micro_batch(asked, use[0])
        told += [f"largest micro batch {micro:>5}  {label}" for label, micro in largest.items()]
    return facts, [*told, ""]


def _search(
    questions: list[Question], wishes: Wishes, generation: str | None, point: PresetPoint | None, wanted: Searched
) -> int:
    """Where placements are searched: the answer or its scaling curves, and what a simulation says of the best."""
    most_only = wishes.target is not None or wishes.deadline is not None
    devices = () if most_only else wishes.devices  # under a target they are the most that are looked at
    samples_on = point.ranks if point else (devices or (USUAL_DEVICES,))[0]
    asked = request.make_search(questions, samples_on, wishes, generation)
    columns = terminal_columns()
    if wanted.scale is not None:
        counts, device = ask.device_range(wanted.scale), asked.questions[0].hardware.name
        best = curves(asked.on_first_device, counts, questions[0].workload, device)
        return _show_curves(questions[0], {"best": best}, counts)
    found = request.answer(asked, wishes)
    facts: dict[str, Any] = {"search": {**found.model_dump(mode="json"), "met": found.met}}
    told = [*show.answer_lines(found, columns)]
    if wanted.sensitivity:
        changes = request.sensitivity(asked, wishes, found)
        facts["sensitivity"] = [change.model_dump(mode="json") for change in changes]
        told += show.sensitivity_lines(changes, columns)
    if wanted.simulates and found.options:
        slow = measured(wanted.stragglers) if wanted.stragglers else None
        simulated = best_simulated(asked, found, slow)
        facts["simulated"] = {"seconds": simulated.seconds, "causes": simulated.causes}
        told += ["", *lines(simulated, found.options[0].seconds, slow, columns)]
        if wanted.trace is not None:
            wanted.trace.write_text(json.dumps(trace_of(simulated)), encoding="utf-8")
    answer(facts, told)
    return DONE if found.met else GATE_NOT_MET


def _show_curves(asked: Question, made: dict[str, list[CurvePoint]], counts: list[int]) -> int:
    """Scaling curves by backend, or of the best of them; the exit code."""
    facts = {name: [point.model_dump(mode="json") for point in some] for name, some in made.items()}
    answer({"curves": facts}, show.curves_lines(asked, made, counts, terminal_columns()))
    return DONE


def _checked(files: list[Path], parameters: Parameters) -> int:
    """Compare predictions with published rows, read by tools/planner of a checkout. UsageError where there is none."""
    try:
        from tools.planner.check import check_lines, run_check
    except ModuleNotFoundError as error:
        raise UsageError("--check reads tables with tools/planner of the repository: run it in a checkout") from error
    result = run_check(files, parameters)
    answer(result.model_dump(mode="json"), check_lines(result))
    return DONE
