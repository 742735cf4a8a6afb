"""The one prediction that preflight, plans, arrangements, simulations, checks and reports ask for.

From work, layout, device and stack to seconds and bytes by phase, for many candidates at once. Any algorithm and
trainer, colocated, split or asynchronous, goes this way; plain training is its special case of no generation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suite.planner.generation import engine_parts, own_loop, sync_seconds
from suite.planner.memory import Memory, memory_of
from suite.planner.training import scoring_seconds, step_parts, swap_parts
from suite.planner.work import Column, Generation, Pairs, Training, Values

#: Phases in their order; those of a record, and what a whole trainer's own process does beside them.
PHASES = ("sync", "generate", "score", "reference", "reward", "train", "other")
#: What an iteration can wait for most, with the parts of training that count as each.
TRAINING_LIMITS: Mapping[str, tuple[str, ...]] = {
    "training: compute": ("matrix products", "attention", "head and loss", "critic"),
    "training: memory bandwidth": ("elementwise", "optimizer"),
    "training: host link": ("offload",),
    "training: links inside a node": ("tensor parallel", "context parallel"),
    "training: network": ("expert parallel", "gradient reduction", "parameter gathers", "pipeline sends", "stragglers"),
    "training: pipeline bubble": ("bubble",),
    "training: host work": ("launches", "host"),
}
LIMITS = (
    "generation: weights read at every step",
    "generation: keys and values read",
    "generation: matrix products",
    "generation: latency of launches and collectives",
    "generation: the longest sample",
    "generation: the pool of keys and values",
    *TRAINING_LIMITS,
    "weight synchronisation",
    "host work",
)
#: Scores gathered, KL, advantages, scores scattered: a few small collectives and host work.
REWARD_SECONDS = 0.02


@dataclass(frozen=True)
class Predicted:
    """Columns of candidates: ``seconds`` of an iteration and by phase, of its training by part (before stacks' own
    effects), of its generation by part; bytes by part and in all; ``limit`` is an index into ``LIMITS``."""

    seconds: Column
    phases: dict[str, Column]
    training: dict[str, Column]
    generation: dict[str, Column]
    memory: Memory
    limit: Column

    @property
    def fits(self) -> Column:
        return self.memory.fits


def predict(work: Training, gen: Generation, pairs: Pairs, p: Values) -> Predicted:
    """Everything of every pair, from the constants ``p``."""
    memory = memory_of(work, gen, pairs, p)
    of_training = _training(work, p)
    t, who = work.take(pairs.t), gen.take(pairs.g)
    generation = _generation(t, who, pairs, memory, p)
    phases = {name: column[pairs.t] for name, column in of_training.items() if name in PHASES}
    phases["sync"] = np.where(who.engine > 0, sync_seconds(t, who, pairs, p) * who.factor("sync"), 0)
    phases["generate"] = (generation["bulk"] + generation["tail"]) * who.factor("generation")
    training = {name: column[pairs.t] for name, column in of_training.items() if name not in PHASES}
    phases = {name: phases[name] for name in PHASES}
    seconds, limit = iteration_seconds(pairs, phases, generation), _limit(pairs, phases, training, generation)
    return Predicted(seconds, phases, training, generation, memory, limit)


def _training(work: Training, p: Values) -> dict[str, Column]:
    """Phases of the side that trains, and its training by part, of every layout."""
    forward = scoring_seconds(work, p) * work.factor("scoring")
    parts = {name: work.steps * seconds for name, seconds in step_parts(work, p).items()}
    swap, casts = swap_parts(work, p)
    host = p["iteration_fixed"] + p["sample_host"] * work.samples
    return {
        **parts,
        "score": work.old * forward * (1 + work.critic),
        "reference": work.reference * (forward + swap + casts),
        "reward": np.where(work.samples > 0, REWARD_SECONDS, 0) + work.reward * work.samples,
        "train": sum(parts.values()) * work.factor("training"),
        "other": np.where(work.jobs.trainer > 0, host, 0),
    }


def _generation(work: Training, gen: Generation, pairs: Pairs, memory: Memory, p: Values) -> dict[str, Column]:
    """Seconds by part: ``bulk`` and ``tail`` are the whole, for either way to generate."""
    engine = gen.engine > 0
    parts = engine_parts(gen, pairs.staleness, memory.pool, p) if np.any(engine) else {}
    own = {} if np.all(engine) else own_loop(work, gen, p)
    told = {**own, "bulk": sum(own.values())}
    names = ("bulk", "tail", "together", "read", "cache", "products", "prefill", "latency", "waits")
    found = {name: np.where(engine, parts.get(name, 0.0), told.get(name, 0.0)) for name in names}
    # An effect of the stack's is none on tools.
    found["tail"] = found["tail"] + gen.tools / gen.factor("generation")
    return found | {"tools": np.broadcast_to(gen.tools, np.shape(gen.devices))}


def iteration_seconds(pairs: Pairs, phases: Mapping[str, Column], generation: Mapping[str, Column]) -> Column:
    """Seconds of a whole iteration by placement.

    Colocated, or split and waiting: the phases one after the other. One step off: the slower side, since either works
    on while the other does. As far as ``staleness`` allows, samples of the next iterations fill the places that come
    free, and nobody waits for the longest (AReaL, arXiv 2505.24298, section 4.1), but for tools while weights may age.
    """
    learn = _learning(phases)
    one_by_one = phases["generate"] + learn + phases["sync"]
    free = np.where(pairs.colocated > 0, 0, np.clip(pairs.staleness, 0, 1))
    generate = phases["generate"] * (1 - free * _tail_share(generation))
    generate = np.maximum(generate, generation["tools"] / (1 + pairs.staleness))
    return (1 - free) * one_by_one + free * (np.maximum(generate, learn) + phases["sync"])


def _learning(phases: Mapping[str, Column]) -> Column:
    """Seconds of the side that trains."""
    return np.asarray(sum(column for name, column in phases.items() if name not in ("sync", "generate")))


def _tail_share(generation: Mapping[str, Column]) -> Column:
    return generation["tail"] / np.maximum(generation["bulk"] + generation["tail"], 1e-300)


def _limit(
    pairs: Pairs, phases: Mapping[str, Column], training: Mapping[str, Column], generated: Mapping[str, Column]
) -> Column:
    """Index of the largest part of the side that is waited for; scoring counts as the training parts it is made of."""
    learn = _learning(phases)
    split = (pairs.colocated == 0) & (pairs.staleness > 0)
    generates, learns = ~split | (phases["generate"] >= learn), ~split | (phases["generate"] < learn)
    whole = sum(generated[name] for name in ("read", "cache", "products", "latency"))
    idle = np.where(split, 0, _tail_share(generated))
    filled = np.where(idle > 0.5, 0.0, phases["generate"] / np.maximum(whole, 1e-300))
    spent = phases["train"] + phases["score"] + phases["reference"]
    scale = np.where(learns, spent / np.maximum(sum(training.values()), 1e-300), 0)
    columns = [
        *(np.where(generates, generated[name] * filled, 0) for name in ("read", "cache", "products", "latency")),
        np.where(generates & (idle > 0.5), phases["generate"], 0),
        np.where(generates & (generated["waits"] > 0) & (idle <= 0.5), phases["generate"] / 2, 0),
        *(scale * sum(training[name] for name in own) for own in TRAINING_LIMITS.values()),
        phases["sync"],
        np.where(learns, phases["other"] + phases["reward"], 0),
    ]
    return np.argmax(columns, axis=0)
