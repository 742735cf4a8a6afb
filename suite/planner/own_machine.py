"""A run on CPU cores, predicted from what the run itself measured of its machine before it began.

No data sheet stands behind it: matrix products go at the rate of the product that each rank timed, bytes at that of the
copy, messages take the latency and bandwidth of the collectives that were timed. What is left are constants of the
stacks (host work of operators, a share of the ceilings), which `python -m suite.fitting.own_runs` learns from runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field

from suite.bundle.record import Record
from suite.spec.base import Frozen
from suite.spec.catalogue import data_file
from suite.spec.manifest import Manifest
from suite.theory.parameters import layer_matrix_elements, parameter_count

FILE = "planner_cpu.json"
#: Constants by name: what is thought before any run (centre, and a spread of its logarithm), and what each means.
PRIORS: Mapping[str, tuple[float, float, str]] = {
    "block_host": (5e-4, 0.7, "host work of a block in a forward pass, seconds: about 40 operators"),
    "pass_host": (1.5e-3, 0.8, "host work of a forward pass beside its blocks, seconds"),
    "step_host": (1e-3, 0.8, "host work of a generated token beside the pass: sampling, cache, seconds"),
    "backward": (2.0, 0.3, "host work of a backward pass over that of a forward pass"),
    "update_host": (3e-3, 0.8, "host work of an optimizer step, seconds"),
    "tensor_host": (1e-4, 0.8, "host work of each weight tensor in an optimizer step, seconds"),
    "products": (0.6, 0.4, "share of the timed product's rate that a model's products reach"),
    "traffic": (0.7, 0.4, "share of the timed copy's rate that elementwise work and the optimizer reach"),
    "exchanges": (3.0, 0.7, "collectives of an optimizer step, in latencies of a small one"),
    "other_host": (1e-3, 0.7, "host work of an iteration outside its phases, seconds"),
    "waits": (0.03, 0.8, "share of the phases that ranks wait for each other, for each doubling of the ranks"),
    "contention": (1.05, 0.1, "how much longer host work takes for each doubling of the ranks of a machine"),
}
#: Standard deviation of a backend's own factor on a phase.
BACKEND_SPREAD = 0.25
PHASES = ("generate", "score", "reference", "train", "other")
_ELEMENT = 4
#: Passes over every block's inputs and outputs: norms, residuals, activation function, casts.
_PASSES = 20
#: Bytes of the optimizer's step for each parameter: gradient, weight and moments, read and written in fp32.
_UPDATE = 28


@dataclass(frozen=True)
class Machine:
    """What a run measured: FLOP/s and bytes per second of a rank, seconds of a small message, bytes per second."""

    flops: float
    copy: float
    latency: float
    bus: float


class Learnt(Frozen):
    """Constants that were learnt, their spread, and what they were learnt from."""

    schema_: str = Field(default="suite/planner-cpu/1", alias="schema")
    values: dict[str, float]
    effects: dict[str, float] = Field(description="backend|phase -> log of a factor on its seconds")
    low: float = Field(description="measured over predicted seconds of an iteration: four of five lay above")
    high: float
    learnt_from: str
    configurations: int


@lru_cache(maxsize=1)
def load_learnt() -> Learnt:
    """The constants that come with the suite."""
    return Learnt.model_validate(data_file(FILE))


def machine_of(record: Record) -> Machine | None:
    """The machine as the run measured it; ``None`` where it did not, or what it says is no rate."""
    worker: Mapping[str, Any] = record.environment.worker or {}
    ceilings = worker.get("ceilings")
    if not isinstance(ceilings, Mapping):
        return None
    flops, copy = _rate(ceilings.get("matmul_flops")), _rate(ceilings.get("copy_bytes_per_second"))
    if flops is None or copy is None:
        return None
    latency, bus = _messages(worker.get("network"))
    return Machine(flops, copy, latency, bus)


def _rate(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30 else None
    )


def _messages(network: Any) -> tuple[float, float]:
    """Latency of a small all-reduce and bandwidth of the largest one; a memory copy's where nothing was timed."""
    measured = network.get("measurements") if isinstance(network, Mapping) else None
    for one in measured if isinstance(measured, list) else ():
        if isinstance(one, Mapping) and one.get("pattern") == "all_reduce":
            sizes = one.get("sizes")
            last = sizes[-1] if isinstance(sizes, list) and sizes and isinstance(sizes[-1], Mapping) else {}
            latency, bus = _rate(one.get("latency_seconds")), _rate(last.get("bus_bytes_per_second"))
            if latency is not None and bus is not None:
                return latency, bus
    return 5e-4, 1e9


def phase_seconds(
    manifest: Manifest, machine: Machine, values: Mapping[str, float], effects: Mapping[str, float]
) -> dict[str, float]:
    """Seconds of each phase of an iteration. ``values`` by the names of ``PRIORS``; ``effects`` as ``Learnt``'s."""
    shape, work, layout, load = manifest.size, manifest.work, manifest.layout, manifest.workload
    elements, head = layer_matrix_elements(shape), shape.vocab * shape.hidden
    split, blocks = layout.tensor, shape.layers / layout.pipeline
    host = values["contention"] ** _doublings(layout.ranks)

    def pass_seconds(tokens: float, shown: float) -> tuple[float, float]:
        """Host work of a forward pass, and what its arithmetic and its bytes take."""
        flops = 2 * (tokens * blocks * elements + shown * head) / split
        moved = _ELEMENT * (_PASSES * tokens * blocks * shape.hidden + 3 * shown * shape.vocab / split)
        moved += _ELEMENT * (blocks * elements + head) / split
        arithmetic = flops / (values["products"] * machine.flops) + moved / (values["traffic"] * machine.copy)
        exchanged = 2 * blocks * (machine.latency + _ELEMENT * tokens * shape.hidden / machine.bus) * (split > 1)
        return host * (values["pass_host"] + blocks * values["block_host"]), arithmetic + exchanged

    prompt, new = float(load.prompt_tokens), float(load.new_tokens)
    if work.lengths is not None:
        prompt, new = float(max(work.lengths.prompt)), float(max(work.lengths.response))
    rollouts, micro = work.replica_rollouts, work.micro_batch
    count = -(-rollouts // micro)
    prefill = sum(pass_seconds(rollouts * prompt, rollouts))
    each = sum(pass_seconds(rollouts, rollouts)) + host * values["step_host"]
    generate = prefill + (new - 1) * each
    own, arithmetic = pass_seconds(micro * (prompt + new), micro * new)
    score = (count + layout.pipeline - 1) * (own + arithmetic)
    trained = parameter_count(shape).total / (split * layout.pipeline)
    sharded = layout.data if layout.zero_stage >= 1 or layout.distributed_optimizer else 1
    tensors = 12 * blocks + 4
    update = host * (values["update_host"] + tensors * values["tensor_host"])
    update += _UPDATE * trained / sharded / (values["traffic"] * machine.copy)
    if layout.data > 1:
        moved = 2 * (layout.data - 1) / layout.data * _ELEMENT * trained
        update += values["exchanges"] * machine.latency + moved / machine.bus
    passes = -(-work.replica_batch // micro) + layout.pipeline - 1
    step = passes * (own * (1 + values["backward"]) + 3 * arithmetic) + update
    seconds = {
        "generate": generate,
        "score": score,
        "train": load.optimizer_steps * load.ppo_epochs * step,
        **({"reference": score} if load.uses_reference else {}),
    }
    seconds = {name: taken * _factor(effects, manifest, name) for name, taken in seconds.items()}
    waits = values["waits"] * _doublings(layout.ranks) * sum(seconds.values())
    return {**seconds, "other": (host * values["other_host"] + waits) * _factor(effects, manifest, "other")}


def _doublings(ranks: int) -> float:
    return float(max(0, ranks.bit_length() - 1))


def _factor(effects: Mapping[str, float], manifest: Manifest, phase: str) -> float:
    from math import exp

    return exp(effects.get(f"{manifest.backend.name}|{phase}", 0.0))


def predict_run(manifest: Manifest, record: Record, learnt: Learnt | None = None) -> dict[str, Any] | None:
    """What a run on CPU cores was to be expected to take, in the form of ``predict_manifest``.

    ``None`` for other runs, for those that measured no ceilings, and for work that this says nothing of: an engine that
    generates, experts, trainers with loops of their own.
    """
    layout, load = manifest.layout, manifest.workload
    known = learnt or load_learnt()
    told = {key.split("|")[0] for key in known.effects}
    plain = layout.generation == "hf" and layout.placement == "colocated" and manifest.size.experts is None
    if manifest.measure.device != "cpu" or not plain or manifest.backend.name not in told or load.critic is not None:
        return None
    machine = machine_of(record)
    if machine is None:
        return None
    phases = phase_seconds(manifest, machine, known.values, known.effects)
    seconds = sum(phases.values())
    rate = manifest.work.global_rollouts / seconds
    return {
        "samples_per_second": rate,
        "iteration_seconds": seconds,
        "phases": phases,
        "low": rate / known.high,
        "high": rate / known.low,
    }


def as_json(learnt: Learnt) -> str:
    """The same constants give the same bytes."""
    body = learnt.model_dump(mode="json", by_alias=True)
    return json.dumps(_rounded(body), indent=1, sort_keys=True) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
