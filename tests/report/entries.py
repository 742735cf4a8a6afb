"""Entries made by hand: real manifests, and records whose figures follow from a rate and a fixed noise."""

import random
from dataclasses import replace
from typing import Any

from msgspec import structs

from suite.bundle.derive import _run_facts
from suite.bundle.events import Events
from suite.bundle.rates import _estimate, padding, realised_lengths
from suite.bundle.record import Counts, Environment, Rollout, as_record, plain
from suite.report.facts.entry import Entry
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.stats.intervals import RunSeconds, rate_interval
from suite.theory.parameters import parameter_count
from tests.synthetic import counts_of, synthetic_manifest

SHARES = {"generate": 0.42, "score": 0.08, "reference": 0.07, "reward": 0.005, "train": 0.4, "other": 0.025}
#: Of an iteration without a reference whose samples an engine of its own generates.
ENGINE_SHARES = {"sync": 0.06, "generate": 0.44, "score": 0.07, "reward": 0.005, "train": 0.4, "other": 0.025}
#: What such an engine tells, as far as it is not of the lengths.
MISMATCH = {
    "idle_slot_seconds": 0.22,
    "logprob_difference_mean": 0.0123,
    "logprob_difference_max": 0.41,
    "effective_sample_size": 0.987,
}
#: Fields of a record that an entry is given as they are.
AS_TOLD = ("notes", "details", "rollout", "staleness", "overlap")
START = 1_790_000_000.0

_LAYERS_HIDDEN = {
    "1M": (2, 128),
    "3M": (3, 256),
    "8M": (4, 384),
    "25M": (8, 512),
    "1.3B": (24, 2048),
    "6.7B": (32, 4096),
    "13B": (40, 5120),
    "66B": (64, 9216),
}
CPU_FACTS: dict[str, Any] = {
    "device": {"type": "cpu", "name": "CPU", "count": 1, "memory_bytes": None, "capability": None},
    **dict.fromkeys(("driver", "cuda", "nccl", "container", "image")),
    "packages": {"torch": "2.13.0", "deepspeed": "0.19.8", "megatron-core": "0.16.1"},
    "python": "3.11.9",
    "cpu": {"model": "Example CPU 3000", "cores": 2, "threads": 2},
    "memory_bytes": 16 << 30,
    "kernel": "6.1.0",
    "host": "bench-1",
    "ceilings": {"matmul_flops": 9.0e10, "copy_bytes_per_second": 1.1e10},
    "notes": ["gloo has no fused reduce-scatter"],
    "resident_baseline_bytes": 300 << 20,
}
#: What a trainer tells beside an engine's facts.
TRAINER_FACTS: dict[str, Any] = {
    **CPU_FACTS,
    "work_differences": ["responses are decoded and tokenised again", "gradients are not clipped"],
}
TRAINER_DETAILS = {"other/decode": 0.004, "train/backward": 0.09, "train/forward": 0.06, "train/optimizer": 0.02}
H100 = {"type": "cuda", "name": "NVIDIA H100 80GB HBM3", "count": 8, "memory_bytes": 80 << 30, "capability": [9, 0]}
GPU_FACTS: dict[str, Any] = {
    **CPU_FACTS,
    "device": H100,
    "driver": "570.86.15",
    "cuda": "12.8",
    "nccl": "2.26.2",
    "ceilings": {"matmul_flops": 7.1e14, "copy_bytes_per_second": 2.9e12},
    "notes": [],
}


def network(bus_bytes_per_second: dict[str, float]) -> dict[str, Any]:
    """The facts of a network that was measured: scope -> bus bandwidth of its largest all-reduce; others reach half."""
    measurements = []
    for scope, largest in bus_bytes_per_second.items():
        for pattern, rate in (("all_reduce", largest), ("all_gather", largest / 2), ("send_receive", largest / 2)):
            sizes = [{"bytes": size, "bus_bytes_per_second": rate * size / (1 << 30)} for size in (1 << 20, 1 << 30)]
            measurements.append({"scope": scope, "pattern": pattern, "latency_seconds": 20e-6, "sizes": sizes})
    return {"backend": "nccl", "dtype": "float32", "measurements": measurements}


def shape(name: str) -> Shape:
    """Of the ladder; of a name that ends in ``-llama`` the Llama shape of that width, with fewer heads of keys."""
    size, _, family = name.partition("-")
    layers, hidden = _LAYERS_HIDDEN.get(size if family == "llama" else name, (2, 64))
    fields: dict[str, Any] = {"name": name, "layers": layers, "hidden": hidden, "positions": 1024}
    if family == "llama":
        heads = max(2, hidden // 64)
        of_family = {"architecture": "llama", "ffn": 3 * hidden, "kv_heads": heads // 2, "tied_embeddings": False}
        return Shape(heads=heads, vocab=5120, **of_family, **fields)
    heads = max(2, hidden // 128)
    return Shape(ffn=4 * hidden, heads=heads, kv_heads=heads, vocab=5120 if hidden < 1024 else 50272, **fields)


def workload(name: str = "smoke", **changes: Any) -> Workload:
    fields = {"prompt_tokens": 16, "new_tokens": 16, "rollouts": 8, "micro_batch": 8, **changes}
    return Workload(name=name, **fields)


def grpo(**changes: Any) -> Workload:
    """GRPO on groups of four samples of uneven length."""
    lengths = "lognormal:mean=48,sigma=0.6,cap=128,at-cap=0.1"
    fields = {"name": "reasoning", "algorithm": "grpo", "group": 4, "lengths": lengths, "rollouts": 16}
    return Workload.model_validate({"prompt_tokens": 16, "micro_batch": 8, **fields, **changes})


def manifest(
    *, backend="deepspeed", size="1M", ranks=1, layout: Layout | None = None, device="cpu", work=None, **asked: Any
) -> Manifest:
    """``asked``: more of ``synthetic_manifest``."""
    if layout is None:
        sharded = {"zero_stage": 2} if "deepspeed" in backend else {"distributed_optimizer": True}
        layout = Layout(nodes=-(-ranks // 8), devices_per_node=min(ranks, 8), data=ranks, **sharded)
    return synthetic_manifest(
        plan="0" * 64,
        backend=backend,
        size=shape(size),
        workload=work or workload(),
        layout=layout,
        device=device,
        precision="fp32" if device == "cpu" else "bf16",
        stack={"torch": "2.13.0", ("deepspeed" if "deepspeed" in backend else "megatron-core"): "1.0"},
        **{"iterations": 6, "seed": 1234, **asked},
    )


def entry(
    *, rate=20.0, spread=0.01, shares=None, peak_factor=1.6, verdict="steady", facts=None, counts=None, **asked: Any
) -> Entry:
    """A run that ended well: ``rate`` samples/s, iterations and runs noisy by ``spread``.

    ``counts``: what was counted otherwise than it was asked for. ``asked``: fields of the record that are told as they
    are, and more of ``manifest``; of ``rollout`` figures beyond what follows from the lengths.
    """
    told = {name: asked.pop(name) for name in AS_TOLD if name in asked}
    if "rollout" in told:
        told["rollout"] = {**dict.fromkeys(Rollout.__struct_fields__), **told["rollout"]}
    made = manifest(**asked)
    noise = random.Random(made.run.id)
    mean = made.work.global_rollouts / rate * (1 + spread * noise.gauss(0, 1))
    counted = tuple(mean * (1 + spread * noise.gauss(0, 1)) for _ in range(made.measure.iterations))
    seconds = (2 * mean, mean, *counted)
    counted = seconds[made.measure.warmup :]
    counted_work = _counts(made)
    measured = {
        "counts": structs.replace(counted_work, **(counts or {})),
        "algorithm": made.workload.algorithm.text() if made.workload.algorithm.name != "ppo" else None,
        "lengths": realised_lengths(made),
        "padding": padding(made, counted_work),
        "throughput": _throughput(counted_work, made.layout.ranks, counted),
        "phases": _phases(shares or SHARES, sum(counted) / len(counted), made.layout.asynchronous),
        "memory": _memory(made, peak_factor),
        "compute": _compute(made),
        "steady_state": _state(made, len(counted), verdict),
        "iterations": {"seconds": seconds},
        "environment": _environment(made, facts),
        **told,
    }
    return _entry(made, measured)


def failed(failure="oom_device", evidence=("RuntimeError: out of memory",), **asked: Any) -> Entry:
    """A run that told its hardware and then died in training."""
    made = manifest(**asked)
    status = "interrupted" if failure == "interrupted" else "failed"
    told = {"kind": failure, "phase": "train", "evidence": evidence}
    return _entry(made, {"status": status, "failure": told, "environment": _environment(made, None)})


def repeats(count: int, first: int = 1, **asked: Any) -> list[Entry]:
    """Runs from repeat ``first`` on: other repeats have other noise."""
    return [entry(repeat=repeat, **asked) for repeat in range(first, first + count)]


def recorded(entry: Entry, **fields: Any) -> Entry:
    return replace(entry, record=structs.replace(entry.record, **fields))


def started(entry: Entry, **fields: Any) -> Entry:
    """The same run, started otherwise: its launcher, its time."""
    return recorded(entry, run=structs.replace(entry.record.run, **fields))


def driven(entry: Entry, launcher: str | None = "local", **facts: Any) -> Entry:
    """The same run by this launcher, of which its driver tells this."""
    environment = structs.replace(entry.record.environment, driver=facts or None)
    return started(recorded(entry, environment=environment), launcher=launcher)


def undescribed(entry: Entry) -> Entry:
    """The same run, which died before it told where it ran."""
    return recorded(entry, environment=Environment(worker=None, driver=None))


def matrix(sizes=("1M", "3M", "8M", "25M"), ranks=(1, 2), runs=3, device="cpu", work=None) -> list[Entry]:
    """Two backends over sizes and ranks, rates falling with the size."""
    entries = []
    for size in sizes:
        million = parameter_count(shape(size)).total / 1e6
        for count in ranks:
            for backend, factor in (("deepspeed", 1.0), ("megatron", 1.22 if million < 20 else 1.005)):
                speed = 120.0 if device == "cpu" else 60_000.0
                scaled = count ** (0.72 if backend == "deepspeed" else 0.8)
                rate = factor * speed / million**0.9 * scaled
                shares = dict(SHARES, generate=0.5, train=0.32) if backend == "megatron" else SHARES
                peak = 1.5 + 0.3 * (backend == "deepspeed") + 0.2 / count
                asked = {"backend": backend, "size": size, "ranks": count, "device": device, "work": work}
                entries += repeats(runs, rate=rate, shares=shares, peak_factor=peak, **asked)
    return entries


def _entry(made: Manifest, measured: dict[str, Any]) -> Entry:
    empty: dict[str, Any] = dict.fromkeys(("failure", "counts", "throughput", "phases", "memory", "compute", "energy"))
    empty |= {"status": "ok", "steady_state": _state(made), "iterations": {"seconds": ()}}
    started = START + 60 * made.run.repeat
    run = _run_facts(Events(driver=(), ranks={}, notes=()), made)
    run = structs.replace(run, launcher="local", started=started, ended=started + 50)
    record = as_record(plain({"run": run, **empty, **measured}))
    return Entry(manifest=made, record=record, path=f"runs/{made.run.id}")


def _state(made: Manifest, counted: int = 0, verdict: str | None = None) -> dict[str, Any]:
    reasons = () if verdict in ("steady", None) else ("the slope's interval leaves out 0",)
    told = {"verdict": verdict, "reasons": reasons, "test": "slope interval holds 0, spread at most 10 %"}
    return {"warmup": made.measure.warmup, "iterations": counted, **told}


def _phases(shares: dict[str, float], mean: float, asynchronous: bool) -> dict[str, Any]:
    told = {
        name: {"seconds": share * mean, "share": None if asynchronous else share, "tokens_per_second": None}
        for name, share in shares.items()
    }
    return {**dict.fromkeys(SHARES), **told}


def _counts(made: Manifest) -> Counts:
    total = parameter_count(made.size).with_value_head
    told = {"optimizer_steps": 1, "trainable_parameters": total, "total_parameters": total}
    return Counts(**{**counts_of(made), **told})


def _throughput(counts: Counts, ranks: int, seconds: tuple[float, ...]) -> dict[str, Any]:
    tokens = counts.prompt_tokens + counts.response_tokens
    works = {
        "samples_per_second": counts.samples,
        "tokens_per_second": tokens,
        "tokens_per_second_per_device": tokens / ranks,
    }
    rates = {name: _estimate(rate_interval(RunSeconds(work, seconds))) for name, work in works.items()}
    return {**rates, "convention": "tokens are prompt and response tokens; Student's t on the mean iteration time"}


def _memory(made: Manifest, peak_factor: float) -> dict[str, Any]:
    floor = 16 * parameter_count(made.size).total // made.layout.ranks
    by_phase = {"train": floor, "generate": floor // 2}
    peak = int(peak_factor * floor)
    on_gpu = made.measure.device == "cuda"
    allocated = int(0.9 * peak) if on_gpu else peak
    peaks = {
        "peak_allocated_bytes": allocated,
        "peak_reserved_bytes": peak if on_gpu else None,
        "peak_device_bytes": peak + (600 << 20) if on_gpu else None,
        "peak_resident_bytes": peak + (300 << 20),
    }
    return {
        **peaks,
        "resident_baseline_bytes": 300 << 20,
        "theoretical_minimum_bytes": floor,
        "efficiency": floor / peak,
        "efficiency_allocated": floor / allocated,
        "by_phase": _by_phase(made, peaks),
        "min_over_ranks": peaks,
        "allocation_retries": 0 if on_gpu else None,
        "floor": {"bytes": floor, "phase": "train", "parts": {"states": floor}, "by_phase": by_phase},
    }


def _by_phase(made: Manifest, train: dict[str, Any]) -> dict[str, Any]:
    """Training needs most; an engine's weights and cache are there while it is synchronised and generates."""
    if made.layout.generation == "hf":
        return {"train": train}
    less = {name: value and int(0.7 * value) for name, value in train.items()}
    return {"sync": less, "generate": less, "train": train}


def _compute(made: Manifest) -> dict[str, Any]:
    known = {"mfu": 0.38, "hfu": 0.41, "mbu": 0.22, "peak_flops": 989e12}
    told = {"model_flops": 1e12, "hardware_flops": 1.1e12, "convention": "matrix products, non-causal attention"}
    return {**told, **(known if made.measure.device == "cuda" else dict.fromkeys(known))}


def _environment(made: Manifest, facts: dict[str, Any] | None) -> Environment:
    default = CPU_FACTS if made.measure.device == "cpu" else GPU_FACTS
    return Environment(worker=default if facts is None else facts, driver=None)
