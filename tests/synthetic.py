"""Whole bundles without processes: what a run would have left, written straight to its folder."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.spec.base import Track
from suite.spec.layout import Layout
from suite.spec.manifest import Backend, Limits, Manifest, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from tests.scripted_worker import MIB, PHASES, STATS, peaks_of

_SMALL: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 512, "positions": 64}
GPT = Shape(name="1M", ffn=256, kv_heads=4, **_SMALL)
SMOKE = Workload(name="smoke", prompt_tokens=8, new_tokens=8, rollouts=4, micro_batch=2)
LLAMA = Shape(name="1M-llama", architecture="llama", ffn=192, kv_heads=2, tied_embeddings=False, **_SMALL)
#: How an iteration divides into phases; the rest is `other`.
SHARES = PHASES
#: Of an iteration that generates in an engine of its own: weights go there first.
SYNC_SHARE = 0.04
#: Of a period of an asynchronous trainer, whose last act is the publication of weights.
PERIOD_SHARES = {"generate": 0.1, "score": 0.1, "reference": 0.1, "reward": 0.0, "train": 0.6, "sync": SYNC_SHARE}
#: Of the time of its ranks, that a role works in a period.
BUSY_SHARES = {"generation": 0.8, "training": 0.7}
#: What a rank tells of its generation.
ROLLOUT = {
    "idle_slot_seconds": 0.2,
    "logprob_difference_mean": 0.01,
    "logprob_difference_max": 0.05,
    "effective_sample_size": 0.98,
}
BEGAN, HOUR = 1_700_000_000.0, 3600.0
#: Seconds of iteration i on rank r.
Seconds = Callable[[int, int], float]
Event = dict[str, Any]


def synthetic_manifest(
    *,
    backend: str = "deepspeed",
    kind: str = "engine",
    size: Shape = GPT,
    workload: Workload = SMOKE,
    layout: Layout | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    warmup: int = 2,
    iterations: int = 8,
    repeat: int = 1,
    plan: str = "plan",
    track: Track = "equal-config",
    stack: Mapping[str, str] | None = None,
    code: str | None = None,
    environment: str | None = None,
    base: str | None = None,
    **measure: Any,
) -> Manifest:
    """A manifest of one rank unless told. ``code``: digest of the backend's package; ``measure``: more of its own."""
    return make_manifest(
        plan=plan,
        repeat=repeat,
        backend=Backend.model_validate({"name": backend, "kind": kind, "environment": environment}),
        size=size,
        workload=workload,
        layout=layout or Layout(devices_per_node=1, data=1),
        measure=Measure.model_validate(
            {"device": device, "precision": precision, "warmup": warmup, "iterations": iterations, **measure}
        ),
        limits=Limits(),
        stack=dict(stack or {backend: "1.0"}),
        stack_code={backend: code} if code else {},
        track=track,
        base=base,
    )


def grpo_workload(**changes: Any) -> Workload:
    """GRPO on groups of four samples, whose responses are of uneven length."""
    fields = {
        "name": "grpo-smoke",
        "prompt_tokens": 8,
        "lengths": "lognormal:mean=10,sigma=0.6,cap=24,at-cap=0.125",
        "algorithm": "grpo",
        "group": 4,
        "rollouts": 8,
        "micro_batch": 2,
    }
    return Workload.model_validate({**fields, **changes})


def counts_of(manifest: Manifest) -> dict[str, int]:
    samples, workload, drawn = manifest.work.global_rollouts, manifest.workload, manifest.work.lengths
    prompt, response, padded = samples * workload.prompt_tokens, samples * workload.new_tokens, 0
    if drawn is not None:
        prompt, response = sum(drawn.prompt), sum(drawn.response)
        if not manifest.layout.packing:
            padded = (samples * workload.sequence_tokens - prompt - response) * workload.ppo_epochs
    return {
        "samples": samples,
        "prompt_tokens": prompt,
        "response_tokens": response,
        "padded_tokens": padded,
        "trained_tokens": (prompt + response) * workload.ppo_epochs,
        "optimizer_steps": workload.optimizer_steps * workload.ppo_epochs,
        "trainable_parameters": 1_000_000,
        "total_parameters": 1_000_000,
    }


def period_of(manifest: Manifest, iteration: int, seconds: float) -> dict[str, Any]:
    """What rank 0 of an asynchronous trainer tells of a period: all samples are one publication old."""
    layout = manifest.layout
    ranks = {"generation": layout.generation_ranks, "training": layout.training_ranks}
    return {
        "publication": iteration + 2,
        "staleness": {"1": manifest.work.global_rollouts},
        "roles": {
            name: {"ranks": count, "busy_seconds": BUSY_SHARES[name] * count * seconds} for name, count in ranks.items()
        },
    }


def shares_of(manifest: Manifest) -> dict[str, float]:
    """How an iteration of this manifest divides into phases, in their order."""
    shares = PERIOD_SHARES
    if not manifest.layout.asynchronous:
        shares = ({"sync": SYNC_SHARE} if manifest.layout.generation != "hf" else {}) | SHARES
    return {name: share for name, share in shares.items() if name != "reference" or manifest.workload.uses_reference}


def rank_events(
    manifest: Manifest,
    rank: int,
    seconds: Seconds,
    *,
    completed: int | None = None,
    memory_bytes: int = 512 * MIB,
    facts: Mapping[str, Any] | None = None,
    device: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
    rollout: Mapping[str, Any] | None = None,
    staleness: int | None = None,
    failure: Mapping[str, Any] | None = None,
    ended: bool = True,
) -> list[Event]:
    """What one rank writes: all iterations unless ``completed`` says fewer, then its failure, then its end.

    ``details``: parts of an iteration with their share of it. ``rollout`` and ``staleness``: what it tells of
    generation.
    """
    asked = manifest.measure.warmup + manifest.measure.iterations
    done = asked if completed is None else completed
    cuda = manifest.measure.device == "cuda"
    log = _Log(rank, manifest)
    log.write(
        "start",
        schema="suite/events/1",
        world_size=manifest.layout.ranks,
        local_rank=rank % manifest.layout.devices_per_node,
        host="host-a",
        pid=1000 + rank,
        manifest_hash=manifest.hash,
        suite_version="0",
        resident_bytes=100 * MIB,
    )
    facts = facts_of(manifest) if facts is None else dict(facts)
    log.write("environment", facts=facts)
    log.write("memory", iteration=None, phase="setup", **peaks_of(memory_bytes // 2, cuda))
    counts = counts_of(manifest)
    for iteration in range(done):
        whole = seconds(iteration, rank)
        began, passed = log.time, 0.0
        for phase, share in shares_of(manifest).items():
            here = {"iteration": iteration, "phase": phase}
            passed += share * whole
            log.time = began + passed
            log.write("phase", seconds=share * whole, wait_seconds=0.0, **here)
            log.write("memory", **here, **peaks_of(memory_bytes, cuda))
        log.time = began + whole
        optional: dict[str, Any] = {} if device is None else {"device": dict(device)}
        if details is not None:
            optional["details"] = {name: part * whole for name, part in details.items()}
        told = {"rollout": None if rollout is None else dict(rollout), "staleness": staleness}
        if facts.get("derivation", 1) >= 3:  # as workers report since then
            told["noise"] = {"seconds": whole}
        if manifest.layout.asynchronous and rank == 0:
            told["asynchronous"] = period_of(manifest, iteration, whole)
        optional |= {name: value for name, value in told.items() if value is not None}
        log.write("iteration", iteration=iteration, seconds=whole, counts=counts, stats=dict(STATS), **optional)
    if failure is not None:
        log.write("failure", **failure)
    if ended:
        log.write("end", status="failed" if failure is not None else "ok", iterations=done, model_seconds=0.5)
    return log.events


def driver_events(
    manifest: Manifest,
    status: str | None,
    failure: Mapping[str, Any] | None = None,
    turns: Mapping[str, Any] | None = None,
) -> list[Event]:
    """The driver's launch, failure and end; without a status it died before its end. ``turns``: as launched with."""
    ranks = manifest.layout.ranks
    log = _Log(None, manifest)
    told = {"turns": turns} if turns else {}
    log.write("launch", schema="suite/events/1", launcher="local", argv=["python"], ranks=ranks, pid=1, **told)
    log.time += 60
    if failure is not None:
        log.write("failure", **failure)
    if status is not None:
        log.write("end", status=status, exit_codes=[0 if status == "ok" else 1] * ranks, elapsed_seconds=60.0)
    return log.events


def facts_of(manifest: Manifest, device_name: str | None = None) -> dict[str, Any]:
    """The facts of a rank's environment event. Manifests name the stack's code since derivation 3."""
    return {
        **({"derivation": 3} if manifest.stack_code else {}),
        "device": {"type": manifest.measure.device, "name": device_name, "count": 1, "memory_bytes": None},
        "driver": None,
        "cuda": None,
        "nccl": None,
        "packages": dict(manifest.stack),
        "code": {name: {"digest": digest} for name, digest in manifest.stack_code.items()},
        "python": "3.11.0",
        "variables": {"OMP_NUM_THREADS": "1"},
        "cpu": {"model": "Synthetic CPU", "cores": 2, "threads": 2},
        "memory_bytes": 8 << 30,
        "kernel": "6.0",
        "container": None,
        "image": None,
        "host": "host-a",
        "ceilings": None,
        "notes": [],
        "resident_baseline_bytes": 100 * MIB,
    }


def write_bundle(
    root: Path,
    manifest: Manifest,
    ranks: Mapping[int, Iterable[Event]],
    driver: Iterable[Event],
    environment: Mapping[str, Any] | None = None,
) -> Path:
    """Put events into ``root/<run id>``, without a record."""
    path = root / manifest.run.id
    (path / "events").mkdir(parents=True)
    (path / "logs").mkdir()
    (path / "manifest.json").write_text(manifest.model_dump_json(by_alias=True))
    (path / "environment.json").write_text(json.dumps(environment or {"host": "host-a", "suite": "0"}))
    for rank, events in ranks.items():
        (path / "events" / f"rank-{rank}.jsonl").write_text(as_lines(events))
    (path / "events" / "driver.jsonl").write_text(as_lines(driver))
    return path


def as_lines(events: Iterable[Event]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def make_bundle(
    root: Path,
    manifest: Manifest | None = None,
    seconds: float | Sequence[float] | Seconds = 1.0,
    *,
    status: str | None = "ok",
    failure: Mapping[str, Any] | None = None,
    **told: Any,
) -> Path:
    """Write a whole bundle and return its folder.

    ``seconds``: of every iteration, of each by number (the last one goes on), or a function of (iteration, rank).
    ``status``: the driver's end, None when it was killed. ``failure``: ``{failure, phase, iteration, evidence}`` as the
    driver classified it. ``told``: what every rank tells (``rank_events``).
    """
    manifest = manifest or synthetic_manifest()
    ranks = {
        rank: rank_events(manifest, rank, _as_function(seconds), **{"ended": status == "ok", **told})
        for rank in range(manifest.layout.ranks)
    }
    return write_bundle(root, manifest, ranks, driver_events(manifest, status, failure))


def unlike(seconds: Sequence[float], run: int) -> Seconds:
    """Of these iterations; no two ranks and no two runs are alike, as if they were copies."""
    return lambda at, rank: seconds[at] * (1 - 0.001 * rank) * (1 + 0.01 * (3 * at * run % 7))


class _Log:
    def __init__(self, rank: int | None, manifest: Manifest) -> None:
        self.rank = rank
        self.time = BEGAN + HOUR * (manifest.run.repeat - 1)
        self.events: list[Event] = []

    def write(self, kind: str, **fields: Any) -> None:
        self.events.append({"kind": kind, "rank": self.rank, "time": self.time, "seq": len(self.events), **fields})


def _as_function(seconds: float | Sequence[float] | Seconds) -> Seconds:
    if callable(seconds):
        return seconds
    if isinstance(seconds, (int, float)):
        return lambda iteration, rank: float(seconds)
    return lambda iteration, rank: float(seconds[min(iteration, len(seconds) - 1)])
