"""The work that a report is about: each workload once, and where the work of trainers differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from suite.report.facts.entry import Entry
from suite.report.facts.pool import Row
from suite.report.formatting.numbers import counted
from suite.spec.workload import Reward, Workload


@dataclass(frozen=True)
class WorkFacts:
    """One workload as its manifests have it: the name, and what one PPO iteration does."""

    name: str
    scaling: str
    text: str


@dataclass(frozen=True)
class WorkDifference:
    """One way in which a trainer's work differs from the suite's own iteration, and the rows whose runs state it."""

    backend: str
    rows: tuple[str, ...]
    text: str


def work_facts(entries: Sequence[Entry]) -> tuple[WorkFacts, ...]:
    """The distinct workloads, by name."""
    distinct: dict[str, Workload] = {}
    for entry in entries:
        distinct.setdefault(
            entry.manifest.workload.model_dump_json(exclude={"note", "source"}), entry.manifest.workload
        )
    facts = {WorkFacts(workload.name, workload.scaling, _text(workload)) for workload in distinct.values()}
    return tuple(sorted(facts, key=lambda fact: (fact.name, fact.scaling, fact.text)))


def work_differences(rows: Sequence[Row]) -> tuple[WorkDifference, ...]:
    """Each sentence once per backend, in the order in which the runs have them."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        for text in row.work_differences:
            found[row.backend, text].append(row.name)
    return tuple(WorkDifference(backend, tuple(names), text) for (backend, text), names in found.items())


def _text(workload: Workload) -> str:
    where = "per rank" if workload.scaling == "weak" else "in all"
    score = _reward(workload.reward)
    trains = (
        "all layers train"
        if workload.trainable_layers is None
        else f"the last {workload.trainable_layers} layers train"
    )
    if workload.lora_rank is not None:
        trains = f"LoRA of rank {workload.lora_rank} on every block, whose matrices are frozen"
    if workload.critic is not None:
        trains += f", and a critic of {workload.critic.layers} layers, width {workload.critic.hidden}"
    return (
        f"{workload.prompt_tokens} prompt + {workload.new_tokens} new tokens, {workload.rollouts} samples {where} "
        f"({workload.scaling} scaling), {counted(workload.ppo_epochs, 'PPO epoch')} of "
        f"{counted(workload.optimizer_steps, 'optimizer step')}, "
        f"micro batch at most {workload.micro_batch}, {trains}, {workload.reference} reference, {score}"
    )


def _reward(reward: Reward) -> str:
    if reward.kind == "constant":
        return f"constant reward {reward.value:g}"
    if reward.kind == "token-below":
        return f"token-below reward {reward.threshold}"
    return "pseudo-reward by sample"
