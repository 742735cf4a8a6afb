"""One rank of a check: ``python -m tests.gpu.rank CHECK MANIFEST.json SCRATCH_FOLDER``.

Runs in the stack's interpreter on the device that the manifest names, and prints figures as JSON for the judge. On a
CPU, what only CUDA has is read from the host instead: its clock for CUDA's events, the resident set for the allocator.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from suite.worker.devices import show_devices_by_number
from suite.worker.events import EventLog, Progress
from suite.worker.loop import Loop
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import open_gpu
from suite.worker.process import peak_resident_bytes, resident_bytes
from suite.worker.rank import read_rank
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.registry import backend_class
from suite.worker.samples import Samples
from suite.worker.trainers.clock import marker
from suite.worker.world import World, join, leave
from tests.worker.engines.batches import even_batch, loss_of
from tests.worker.written import events_in

STEPS, ROWS, PROMPT_TOKENS, NEW_TOKENS = 4, 8, 8, 24
#: the shape whose weights are carried from one engine to the other
HIDDEN, LAYERS = 256, 4
#: a loss scale that overflows fp16 in the first step, as a power of two
OVERFLOWING_SCALE_POWER = 40
BLOCK_BYTES = 256 << 20
#: tokens of the samples of a packed row
PACKED_LENGTHS = (130, 1, 57, 300, 64)


class MarkedRecorder(Recorder):
    """The recorder, with the device's own clock and memory read around and behind each phase."""

    def __init__(self, world: World, folder: Path, baseline: int) -> None:
        log = EventLog(str(folder), world.rank, mirror=False)
        super().__init__(world, log, MemoryProbe(world.device, baseline), None, Progress())
        self._mark = marker(world.device.type)
        self._told: list[tuple[str, Any, Any, dict[str, Any]]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with super().phase(name):
            began = self._mark()
            yield
            ended = self._mark()
        self._told.append((name, began, ended, own_memory(self._world.device)))

    def own_figures(self) -> list[dict[str, Any]]:
        """One entry a phase: seconds between the two readings, and memory by the device's own word."""
        told = self._told
        return [{"phase": name, "seconds": _between(*span), "memory": memory} for name, *span, memory in told]


def own_memory(device: torch.device) -> dict[str, Any]:
    """Peaks by torch's statistics, and what NVML says is used on the whole device; on a CPU the resident peak."""
    if device.type == "cpu":
        return {"peak_resident_bytes": peak_resident_bytes()}
    statistics = torch.cuda.memory_stats(device)
    peaks = {f"peak_{kind}_bytes": statistics[f"{kind}_bytes.all.peak"] for kind in ("allocated", "reserved")}
    return {**peaks, "peak_device_bytes": open_gpu(device).used_bytes()}


def clock(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """Phases by the recorder and by the device itself; a block of known size; whose device is sampled."""
    baseline = resident_bytes()
    loop = Loop(_engine(manifest, world), manifest)
    recorder = MarkedRecorder(world, folder, baseline)
    warmup, iterations = manifest["measure"]["warmup"], manifest["measure"]["iterations"]
    for iteration in range(warmup + iterations):
        loop.run_iteration(iteration, recorder)
    phases = zip(events_in(folder, "phase"), events_in(folder, "memory"), strict=True)
    told = [{**phase, "memory": memory} for phase, memory in phases]
    return {
        "told": told,
        "own": recorder.own_figures(),
        "warm": [index for index, phase in enumerate(told) if phase["iteration"] >= warmup],
        "block": _peak_of_a_block(world, baseline),
        "uuids": None if world.device.type == "cpu" else _uuids(world.device),
    }


def _peak_of_a_block(world: World, baseline: int) -> int:
    """By how much the probe's allocated peak rises for BLOCK_BYTES that are taken and freed again."""
    probe = MemoryProbe(world.device, baseline)
    probe.reset()
    before = probe.peaks()["peak_allocated_bytes"]
    torch.ones(BLOCK_BYTES, dtype=torch.uint8, device=world.device)
    return probe.peaks()["peak_allocated_bytes"] - before


def _uuids(device: torch.device) -> dict[str, str]:
    gpu = open_gpu(device)
    sampled = gpu.ask("UUID")
    return {
        "sampled": sampled.decode() if isinstance(sampled, bytes) else sampled,
        "torch": f"GPU-{torch.cuda.get_device_properties(device).uuid}",
    }


def agreement(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """Optimizer steps of both engines in the manifest's precision, and of DeepSpeed in fp32, from equal weights."""
    from tests.worker.engines.megatron.families import load_checkpoint, weights_of

    whole = {**manifest["layout"], "zero_stage": 0}  # nothing to shard, and what Megatron takes
    in_fp32 = {**manifest["measure"], "precision": "fp32"}
    exact = _engine({**manifest, "layout": whole, "measure": in_fp32}, world)
    deepspeed = _engine(manifest, world)
    with torch.no_grad():
        rounded = dict(deepspeed._policy.named_parameters())
        for name, parameter in exact._policy.named_parameters():
            parameter.copy_(rounded[name])
    # Last, because on a CPU Megatron's patches change torch for the whole process.
    megatron = _engine({**manifest, "layout": whole}, world, "megatron")
    load_checkpoint(megatron._model, manifest["size"], weights_of(deepspeed._policy))
    megatron._optimizer.reload_model_params()
    return {
        name: _steps(engine, manifest, world)
        for name, engine in (("exact", exact), ("deepspeed", deepspeed), ("megatron", megatron))
    }


def alone(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """Optimizer steps of the manifest's engine from its own weights, and its notes."""
    engine = _engine(manifest, world)
    return {"steps": _steps(engine, manifest, world), "notes": list(engine.notes)}


def eager(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """As ``alone``, with nothing of Megatron compiled."""
    from suite.worker.engines.megatron import engine, model

    with mock.patch.object(engine, "COMPILED", False), mock.patch.object(model, "COMPILED", False):
        return alone(manifest, folder, world)


def held(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """Bytes that stay between two iterations, on the device and on the host."""
    before = resident_bytes()
    loop = Loop(_engine(manifest, world), manifest)
    for iteration in range(2):
        loop.run_iteration(iteration, NullRecorder())
    gc.collect()
    on_device = torch.cuda.memory_allocated(world.device) if world.device.type == "cuda" else None
    return {"device_bytes": on_device, "host_bytes": resident_bytes() - before}


def overflow(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """``skipped_steps`` of each iteration that starts from a loss scale which overflows; None where none is told."""
    if manifest["backend"]["name"] == "deepspeed":
        from suite.worker import deepspeed_json

        deepspeed_json._INITIAL_SCALE_POWER = OVERFLOWING_SCALE_POWER
    else:
        backend_class("megatron", world.device.type)
        from suite.worker.engines.megatron import optimizer

        optimizer.INITIAL_LOSS_SCALE = 2.0**OVERFLOWING_SCALE_POWER
    loop = Loop(_engine(manifest, world), manifest)
    log = EventLog(str(folder), world.rank, mirror=False)
    recorder = Recorder(world, log, MemoryProbe(world.device, 0), None, Progress())
    for iteration in range(2):
        loop.run_iteration(iteration, recorder)
    return {"skipped_steps": [event.get("skipped_steps") for event in events_in(folder, "iteration")]}


def packed(manifest: dict[str, Any], folder: Path, world: World) -> dict[str, Any]:
    """Attention over a packed row with grouped queries in the manifest's precision: what computes it, and how far its
    result and gradients are from those of each sample alone in fp32, relative to how these spread."""
    from suite.worker.engines.deepspeed import rows
    from suite.worker.models import DTYPES

    dtype, generator = DTYPES[manifest["measure"]["precision"]], torch.Generator().manual_seed(4)
    segments = rows.Segments(PACKED_LENGTHS, world.device)
    tokens, module = sum(PACKED_LENGTHS), SimpleNamespace(num_key_value_groups=4, is_causal=True)
    drawn = [torch.randn(1, heads, tokens, 64, generator=generator).to(world.device, dtype) for heads in (8, 2, 2)]
    told = []
    for inputs, kind in ((drawn, dtype), (drawn, torch.float32)):
        leaves = [tensor.to(kind).clone().requires_grad_() for tensor in inputs]
        result, _ = rows.attend(module, *leaves, None, segments=segments, scaling=0.125)
        (result.float() * torch.arange(64, device=world.device)).sum().backward()
        told.append([result.detach().float(), *(leaf.grad.float() for leaf in leaves if leaf.grad is not None)])
    far = [float((own - exact).norm() / exact.norm()) for own, exact in zip(*told, strict=True)]
    return {"kernel": rows.attention_kernel(world.device, dtype, 64), "distances": far}


def _engine(manifest: dict[str, Any], world: World, name: str | None = None) -> Any:
    return backend_class(name or manifest["backend"]["name"], world.device.type)(manifest, world)


def _steps(engine: Any, manifest: dict[str, Any], world: World) -> list[dict[str, Any]]:
    """Of each optimizer step on the same random batch: log-probs and values before it, its statistics."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(manifest["size"]["vocab"], (ROWS, PROMPT_TOKENS + NEW_TOKENS), generator=generator)
    noise = partial(torch.randn, ROWS, NEW_TOKENS, generator=generator)
    drawn = {name: noise() for name in ("logprobs", "values", "advantages", "returns")}
    tokens, *given = (tensor.to(world.device) for tensor in (tokens, *drawn.values()))
    samples, batch = Samples.even(tokens, PROMPT_TOKENS), dict(zip(drawn, given, strict=True))
    logprobs, values = engine.score(samples)
    # Off policy, so that both clips bite.
    batch["logprobs"] = logprobs + 0.2 * batch["logprobs"]
    batch["values"] = values + 0.2 * batch["values"]
    batch, loss = even_batch(manifest, **batch), loss_of(manifest)
    steps = []
    for _ in range(STEPS):
        logprobs, values = engine.score(samples)
        step = {"logprobs": logprobs.flatten().tolist(), "values": values.flatten().tolist()}
        step.update(engine.train(samples, dict(batch), loss))
        steps.append(step)
    return steps


def _between(began: Any, ended: Any) -> float:
    """Seconds between two readings of the device's clock, or of the host's."""
    return ended - began if isinstance(began, float) else began.elapsed_time(ended) / 1000.0


CHECKS = {check.__name__: check for check in (clock, agreement, alone, eager, held, overflow, packed)}


def main() -> None:
    what, manifest_path, folder = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    torch.set_num_threads(manifest["measure"]["threads_per_rank"])
    device = manifest["measure"]["device"]
    show_devices_by_number(os.environ)
    backend_class(manifest["backend"]["name"], device)  # sets what its stack reads when it is imported
    world = join(read_rank(os.environ), device, 300)
    print(f"RESULT {json.dumps(CHECKS[what](manifest, Path(folder), world))}", flush=True)
    if dist.is_initialized():
        leave()


if __name__ == "__main__":
    main()
