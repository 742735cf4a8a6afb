"""The work that a report is about: each workload once, where that of trainers differs, and what rows counted of it."""

from collections.abc import Sequence

from suite.report.facts.entry import FAMILIES, grouped
from suite.report.facts.pool import Row
from suite.report.formatting.numbers import counted
from suite.spec.shape import Shape
from suite.spec.workload import Reward, Workload


def workloads(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Of each its name, and what one iteration of it does."""
    return sorted({(row.manifest.workload.name, f"{row.work.text}: {_text(row.manifest.workload)}") for row in rows})


def model_families(rows: Sequence[Row]) -> dict[str, str]:
    """The sizes of each family of shapes, in the order of their names; GPT-2 first, which all models once were."""
    shapes = {(row.manifest.size.architecture, row.size): _shape(row.manifest.size) for row in rows}
    found = grouped((family, text) for (family, _), text in shapes.items())
    return {FAMILIES[name]: "; ".join(found[name]) for name in sorted(found, key=lambda name: (name != "gpt2", name))}


def work_differences(rows: Sequence[Row]) -> dict[tuple[str, str], list[str]]:
    """Backend and one way in which its work differs from the suite's own iteration -> the rows whose runs state it."""
    return grouped(((row.backend, text), row.name) for row in rows for text in row.work_differences)


def _text(workload: Workload) -> str:
    where = "per rank" if workload.scaling == "weak" else "in all"
    trains = "all layers train"
    if workload.trainable_layers is not None:
        trains = f"the last {workload.trainable_layers} layers train"
    if workload.lora_rank is not None:
        trains = f"LoRA of rank {workload.lora_rank} on every block, whose matrices are frozen"
    if workload.critic is not None:
        trains += f", and a critic of {workload.critic.layers} layers, width {workload.critic.hidden}"
    lengths = f"{'at most ' * workload.uneven}{workload.prompt_tokens} prompt + {workload.new_tokens} new tokens"
    reference = f"{workload.reference} reference" if workload.uses_reference else "no reference"
    return (
        f"{lengths}, {workload.rollouts} samples {where} "
        f"({workload.scaling} scaling), {counted(workload.ppo_epochs, 'epoch')} of "
        f"{counted(workload.optimizer_steps, 'optimizer step')}, "
        f"micro batch at most {workload.micro_batch}, {trains}, {reference}, {_reward(workload.reward)}"
    )


def _shape(shape: Shape) -> str:
    """``1M-llama (2 layers of width 64, 4 heads, 2 of keys and values)``."""
    keys = f", {shape.kv_heads} of keys and values" if shape.kv_heads != shape.heads else ""
    experts = f", {shape.experts.per_token} of {shape.experts.count} experts a token" if shape.experts else ""
    layers = f"{counted(shape.layers, 'layer')} of width {shape.hidden}"
    return f"{shape.name} ({layers}, {shape.heads} heads{keys}{experts})"


def _reward(reward: Reward) -> str:
    if reward.kind == "constant":
        return f"constant reward {reward.value:g}"
    return f"token-below reward {reward.threshold}" if reward.kind == "token-below" else "pseudo-reward by sample"


#: What a trainer may do more or less of than was asked for; padding is how, not what.
COUNTED = ("prompt_tokens", "response_tokens", "trained_tokens", "optimizer_steps", "trainable_parameters")
#: Passes of whole models over the samples, which no count holds.
PASSES = ("score", "reference")


def done_otherwise(row: Row) -> tuple:
    """Equal for rows that did the same: of a trainer its counts and the passes it makes; an engine's are as asked."""
    if row.setting.kind == "engine" or row.counts is None:
        return ()
    return (*(getattr(row.counts, name) for name in COUNTED), *(name in row.phase_names for name in PASSES))


def otherwise(row: Row, other: Row) -> tuple[str, ...]:
    """In what a row's own counts and passes are not another's, each in words; empty where they did the same."""
    assert row.counts is not None and other.counts is not None, "a row with runs has counts"
    both = [(name, getattr(row.counts, name), getattr(other.counts, name)) for name in ("samples", *COUNTED)]
    counted = [
        f"{own:,} {name.replace('_', ' ')}, not {theirs:,}"
        for name, own, theirs in both
        if own is not None and theirs is not None and own != theirs
    ]
    counted += [f"{name.replace('_', ' ')} not told" for name, own, _ in both if own is None]
    differing = row.phase_names ^ other.phase_names
    passes = [f"{'a' if name in row.phase_names else 'no'} {name} pass" for name in PASSES if name in differing]
    return (*counted, *passes)
