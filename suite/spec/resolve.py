"""From workload and layout to the work of a replica and to a hashed manifest, with every divisibility rule."""

from collections.abc import Mapping, Sequence
from math import gcd
from types import MappingProxyType
from typing import Any

from suite.spec.base import UsageError, digest
from suite.spec.layout import Layout
from suite.spec.lengths import Lengths
from suite.spec.manifest import (
    MANIFEST_SCHEMA,
    Backend,
    Limits,
    Manifest,
    Measure,
    Run,
    SampleLengths,
    Stopping,
    Track,
    Work,
    manifest_hash,
    work_hash,
)
from suite.spec.shape import Shape
from suite.spec.typed import MOST_LENGTHS
from suite.spec.workload import Workload


def layout_errors(size: Shape, workload: Workload, layout: Layout) -> list[str]:
    """Why this shape and workload cannot be laid out so; empty when they can. One line each, with the values."""
    errors = []
    tensor, pipeline, tokens = layout.tensor, layout.pipeline, workload.sequence_tokens
    if size.heads % tensor or size.kv_heads % tensor:
        errors.append(
            f"{size.name} has {size.heads} heads ({size.kv_heads} key-value), not divisible by tensor parallel "
            f"{tensor}: choose a divisor of {gcd(size.heads, size.kv_heads)} with --tp"
        )
    if size.ffn % tensor:
        errors.append(f"{size.name} has ffn {size.ffn}, not divisible by tensor parallel {tensor}")
    experts = 0 if size.experts is None else size.experts.count
    if experts % layout.expert or layout.expert > max(experts, 1):
        errors.append(f"{size.name} has {experts} experts, not divisible by expert parallel {layout.expert}")
    if size.layers % pipeline:
        errors.append(f"{size.name} has {size.layers} layers, not divisible by pipeline parallel {pipeline}")
    if tokens > size.positions:
        errors.append(
            f"{tokens} tokens per sample exceed the {size.positions} positions of {size.name}{_caps(workload)}"
        )
    if layout.sequence_parallel and not workload.uneven and tokens % tensor:
        errors.append(f"{tokens} tokens per sample are not divisible by tensor parallel {tensor} (sequence parallel)")
    if workload.trainable_layers is not None and workload.trainable_layers > size.layers:
        trained = workload.trainable_layers
        errors.append(f"{trained} trainable layers exceed the {size.layers} of {size.name}: fewer --trainable-layers")
    rollouts, steps = workload.global_rollouts(layout.ranks), workload.optimizer_steps
    if rollouts % (layout.data * steps):
        errors.append(f"{rollouts} rollouts are not divisible by data parallel {layout.data} x {steps} optimizer steps")
    if rollouts % workload.group:
        errors.append(f"{rollouts} rollouts do not divide into groups of {workload.group}: other --rollouts or --group")
    if layout.generation_ranks and rollouts % layout.generation_ranks:
        errors.append(f"{rollouts} rollouts are not divisible by {layout.generation_ranks} generation ranks")
    return errors


def _caps(workload: Workload) -> str:
    """Which options have to say less, where the longest sample is the longest of uneven lengths."""
    fields = (("--prompt-lengths", workload.prompt_lengths), ("--lengths", workload.lengths))
    caps = [f"{option} (at most {each.longest})" for option, each in fields if each is not None]
    return f": choose a lower cap with {' or '.join(caps)}" if caps else ""


def resolve_work(size: Shape, workload: Workload, layout: Layout, seed: int = 0) -> Work:
    """The work of one replica; the micro batch is the largest divisor of its batch within the bound. ``seed`` draws
    uneven lengths. Raises UsageError with every reason when the layout does not divide."""
    errors = layout_errors(size, workload, layout)
    if errors:
        raise UsageError("; ".join(errors))
    rollouts = workload.global_rollouts(layout.ranks)
    replica = rollouts // layout.data
    batch = replica // workload.optimizer_steps
    micro = max(part for part in range(1, min(workload.micro_batch, batch) + 1) if batch % part == 0)
    lengths = sample_lengths(workload, rollouts, seed)
    return Work(
        global_rollouts=rollouts, replica_rollouts=replica, replica_batch=batch, micro_batch=micro, lengths=lengths
    )


def sample_lengths(workload: Workload, samples: int, seed: int) -> SampleLengths | None:
    """Of every sample, where they are uneven; a group shares its prompt. UsageError for more than a manifest lists."""
    if not workload.uneven:
        return None
    if samples > MOST_LENGTHS:
        raise UsageError(f"{samples} samples of uneven lengths are more than the {MOST_LENGTHS} that a manifest lists")
    prompts = workload.prompt_lengths or Lengths(kind="fixed", tokens=workload.prompt_tokens)
    responses = workload.lengths or Lengths(kind="fixed", tokens=workload.new_tokens)
    return drawn_lengths(prompts, responses, workload.group, samples, seed)


def drawn_lengths(prompts: Lengths, responses: Lengths, group: int, samples: int, seed: int) -> SampleLengths:
    """Of samples whose lengths have these distributions, in groups that share a prompt."""
    each = prompts.draw(samples // group, 1, 2 * seed)
    shared = tuple(length for length in each for _ in range(group))
    return SampleLengths(prompt=shared, response=responses.draw(samples, group, 2 * seed + 1))


def make_manifest(
    *,
    plan: str,
    repeat: int,
    backend: Backend,
    size: Shape,
    workload: Workload,
    layout: Layout,
    measure: Measure,
    limits: Limits,
    stack: dict[str, str],
    stack_code: Mapping[str, str] = MappingProxyType({}),
    track: Track = "equal-config",
    image: str | None = None,
    manner: Sequence[str] = (),
    stopping: Stopping | None = None,
    base: str | None = None,
) -> Manifest:
    """Resolve and hash one run. ``image``: what names the image it is to run in, if any, and ``manner``: how it is
    started, in words, where that is not the usual way. They are in the run's id, and no part of the manifest, which
    runs anywhere. ``base``: ``Run.base``. Raises UsageError as ``resolve_work``."""
    work = resolve_work(size, workload, layout, measure.seed)
    parts = {"size": size, "workload": workload, "work": work, "layout": layout, "measure": measure, "limits": limits}
    body: dict[str, Any] = {name: part.model_dump(mode="json") for name, part in parts.items()}
    body |= {"schema": MANIFEST_SCHEMA, "backend": backend.model_dump(mode="json")}
    body |= {"track": track, "stack": dict(sorted(stack.items()))}
    if stack_code:
        body["stack_code"] = dict(sorted(stack_code.items()))
    body["hash"] = manifest_hash(body)
    name = run_id(backend.label, size.name, layout.ranks, body["hash"], repeat, image, manner)
    body["run"] = Run(id=name, plan=plan, repeat=repeat, stopping=stopping, base=base)
    body["work_hash"] = work_hash(size, workload, layout.ranks, measure.seed)
    return Manifest.model_validate(body)


def as_repeat(manifest: Manifest, repeat: int, iterations: int | None = None) -> Manifest:
    """The same manifest as another repeat of its row; ``iterations``: counted ones, if not the measure's."""
    row, _, _ = manifest.run.id.rpartition("-r")
    own = None if iterations == manifest.measure.iterations else iterations
    run = manifest.run.model_copy(update={"id": f"{row}-r{repeat}", "repeat": repeat, "iterations": own})
    return manifest.model_copy(update={"run": run})


def run_id(
    backend: str, size: str, ranks: int, whole: str, repeat: int, image: str | None = None, manner: Sequence[str] = ()
) -> str:
    """``deepspeed-8M-n2-1f3a9c2e-r1``, with ``-i5d0c7a91`` before ``-r1`` in an image and ``-srun`` where ranks are
    started so; safe as a folder name, a container label and a DNS label once lowered."""
    safe = "".join(char if char.isalnum() or char in ".-" else "-" for char in size).strip("-.")
    place = "" if image is None else f"-i{digest(image)[:8]}"
    way = "".join(f"-{word}" for word in manner)
    return f"{backend.replace('@', '-')}-{safe}-n{ranks}-{whole[:8]}{place}{way}-r{repeat}"
