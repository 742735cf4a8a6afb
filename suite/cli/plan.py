"""`suite plan`: will it fit, how fast will it be, what will it cost - before any device is booked."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.cli.exits import DONE, GATE_NOT_MET, command
from suite.cli.options.declare import accelerators, argument, flag, group, option
from suite.cli.options.fields import WorkloadOptions, workload_changes
from suite.cli.options.plan_search import Searched, checked_rows, search, show_curves
from suite.cli.options.reading import checked, print_json, require_place
from suite.planner.ask import (
    Question,
    cluster_of,
    device_range,
    fewest_devices,
    largest_micro_batch,
    question,
    without_offload,
)
from suite.planner.calibrate import calibrated
from suite.planner.curves import curves, look_at
from suite.planner.parameters import load_parameters
from suite.planner.search.request import Wishes, manner_of, model_of, preset_of, work_of
from suite.planner.search.wishes import pauses_of, read_prices
from suite.planner.show import fewest_text, plan_lines, text_lines
from suite.spec.terminal import UsageError, say, say_lines
from suite.spec.width import terminal_columns
from suite.tune.search import FROM_PLANNER

Paths = list[Path] | None
USUAL_DEVICE = "A100-SXM-80GB"


@group("Work")
class What:
    """What is planned, by its name."""

    size: str | None = option("model size (see `suite sizes`)")
    shape: Path | None = option("shape file: YAML, or a Hugging Face config.json")
    preset: str | None = option(
        "plan the work of a preset on its devices, with its engine (see `suite sizes`)",
    )
    backend: list[str] | None = option("backend; repeat for several [default: deepspeed and megatron]")
    workload: str | None = option(
        "work of an iteration [default: trlx-ds-chat, grpo where engines are searched, or the preset's]",
    )
    samples_per_iteration: int | None = option("samples of an iteration in all, on however many devices")
    scaling: str = option("weak (samples per device fixed) or strong (in all)", "weak")


@group("Work")
class Manner:
    """How samples are generated and put into batches."""

    generation: str | None = option(
        "the training stack's own loop, or vLLM [default: hf; vllm where a placement is searched]", metavar="hf|vllm"
    )
    engine_sleep: bool = flag("vLLM frees its memory while the policy trains")
    packing: bool = flag("uneven samples end to end, without padding")
    balance: bool = flag("equal tokens on every replica")
    fp8: bool = flag("train, and generate with vLLM, in fp8")
    reward_seconds: float = option("of each sample's reward or verifier, one after another", 0.0, min=0, max=86400)
    tool_seconds: float = option("that a sample waits for tools, in all of its turns", 0.0, min=0, max=86400)


@dataclass(frozen=True)
class Work(Manner, WorkloadOptions, What):
    """All that says what is planned; the fields of the workload follow from their declarations."""


@group("Where it runs")
class Place:
    """The devices, and what joins them."""

    device: list[str] | None = option(
        "accelerator of the catalogue, e.g. H100-SXM-80GB; H100 is enough; repeat, or any, to compare "
        "under --target [default: A100-SXM-80GB, the preset's, or any under --target]",
        metavar="NAME",
        autocompletion=accelerators,
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


@group("Check and calibrate")
class Measured:
    """Measurements beside predictions."""

    check: Paths = option("compare predictions with the published rows in this file or folder; repeat")
    calibrate: Path | None = option("correct predictions by the runs in this folder")


@command
def plan(
    *,
    files: Paths = argument("with --check: more files or folders in the published format", None, metavar="FILE"),
    work: Work,
    place: Place,
    wanted: Searched,
    measured: Measured,
    as_json: bool = flag("print as JSON", "--json"),
) -> int:
    """Predict memory, time and cost of layouts before any run: all that fit, best first, and what is missing elsewhere.

    With --check, predict published measurements and print the errors instead.
    """
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
    preset, point = named or (None, None)
    manner = manner_of(work.generation, generates, work.engine_sleep, work.packing, work.balance, point)
    cluster = cluster_of(place.gpus_per_node, place.nic, place.link)
    backends = work.backend or (list(preset.backends) if preset else ["deepspeed", "megatron"])
    first = wishes.kinds[0] if wishes.kinds[0].lower() != "any" else USUAL_DEVICE
    model = model_of(work.size, work.shape, point)
    given: dict[str, Any] = {**workload_changes(work), "scaling": work.scaling}
    if work.samples_per_iteration is not None:
        given |= {"rollouts": work.samples_per_iteration, "scaling": "strong"}
    done = checked(lambda: work_of(work.workload, preset, point, model, searches).changed(given))
    questions = [question(model, done, first, name, parameters, manner, cluster, work.fp8) for name in backends]
    questions = [replace(asked, reward=work.reward_seconds, tools=work.tool_seconds) for asked in questions]
    if measured.calibrate is not None:
        questions = [calibrated(asked, measured.calibrate) for asked in questions]
    if searches:
        if wanted.min_devices or wanted.max_batch:
            raise UsageError(
                "--min-devices and --max-batch are of layouts alone: leave out --placement, --target and --preset"
            )
        return search(questions, wishes, work.generation, named, wanted, as_json)
    if wanted.scale is not None:
        counts = device_range(wanted.scale)
        made = {
            asked.profile.name: curves(look_at(asked), counts, asked.workload, asked.hardware.name)
            for asked in questions
        }
        return show_curves(questions[0], made, counts, as_json)
    prices = [wishes.prices.of(asked.hardware.name) for asked in questions]
    plans = [
        _answer(asked, place.devices, price, wanted, as_json) for asked, price in zip(questions, prices, strict=True)
    ]
    if as_json:
        print_json({"plans": plans})
    return DONE if any(each["options"] for each in plans) else GATE_NOT_MET


def _answer(
    asked: Question, counts: list[int] | None, price: float | None, wanted: Searched, as_json: bool
) -> dict[str, Any]:
    """The plan of a backend, shown unless it is for the JSON."""
    fewest = fewest_devices(asked) if wanted.min_devices else None
    use = [fewest] if fewest is not None else (counts or [8])
    result = asked.plan(use, wanted.objective, price, wanted.top)  # type: ignore[arg-type]
    extra: dict[str, Any] = {}
    if wanted.min_devices:
        extra = {"min_devices": fewest, "min_devices_without_offload": fewest_devices(without_offload(asked))}
    if wanted.max_batch:
        extra["max_micro_batch"] = largest_micro_batch(asked, use[0])
    if not as_json:
        columns = terminal_columns()
        say_lines(plan_lines(result, columns))
        if result.options and wanted.objective == "throughput" and len(use) == 1:
            first = [f"{one.label} (micro batch {one.micro_batch})" for one in result.options[:FROM_PLANNER]]
            say_lines(text_lines(f"suite tune would try next after the stack's own: {'; '.join(first)}", columns))
        if wanted.min_devices:
            say_lines(text_lines(fewest_text(result, fewest, extra["min_devices_without_offload"]), columns))
        for label, micro in extra.get("max_micro_batch", {}).items():
            say(f"largest micro batch {micro:>5}  {label}")
        say("")
    return {**result.model_dump(mode="json"), **extra}
