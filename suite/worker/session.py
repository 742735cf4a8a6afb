"""One rank's run from the first event to the last; imports torch and the stack, so it is imported late."""

import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from suite.worker.ceilings import measure_ceilings
from suite.worker.devices import check_torch_devices
from suite.worker.engines import engine_class
from suite.worker.engines.base import Engine
from suite.worker.events import EventLog
from suite.worker.facts import collect_facts
from suite.worker.loop import PPOLoop
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler, open_gpu
from suite.worker.process import without_collector
from suite.worker.progress import Progress
from suite.worker.rank import RankIdentity
from suite.worker.recorder import Recorder
from suite.worker.resident import resident_bytes
from suite.worker.trainers import trainer_class
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import PhaseClock
from suite.worker.world import World, join, leave

#: an engine, which runs the suite's iteration, or a trainer, which brings its own
Subject = Union[Engine, Trainer]
#: ``build(manifest, world)`` on every rank at the same time; an Engine's or Trainer's class is one
Build = Callable[[Dict[str, Any], World], Subject]


def run(
    manifest: Dict[str, Any],
    identity: RankIdentity,
    log: EventLog,
    progress: Progress,
    find_build: Optional[Callable[[Dict[str, Any]], Build]] = None,
) -> float:
    """All iterations of the manifest; seconds that the model took to build. Whatever goes wrong is raised.

    ``find_build`` imports a stack and gives its class; without it the worker's own backends are asked.
    """
    torch.set_num_threads(manifest["measure"]["threads_per_rank"])
    device_type = manifest["measure"]["device"]
    with without_collector():
        build = (find_build or own_build)(manifest)
    if device_type == "cuda":
        check_torch_devices(os.environ, torch.cuda.device_count())
    world = join(identity, device_type, manifest["limits"]["silence_seconds"])
    sampler, notes = _start_sampler(world)
    facts = collect_facts(world, manifest["stack"])
    facts["ceilings"] = measure_ceilings(world)
    baseline = resident_bytes()
    facts["resident_baseline_bytes"] = baseline
    memory = MemoryProbe(world.device, baseline)
    memory.reset()
    began = time.perf_counter()
    subject: Optional[Subject] = None
    try:
        subject = build(manifest, world)
    finally:
        # Emitted also where the model does not fit: a reader wants to know where that was.
        _describe(subject, facts, notes)
        log.emit("environment", facts=facts)
    model_seconds = time.perf_counter() - began
    log.emit("memory", iteration=None, phase="setup", **memory.peaks())
    iterations = manifest["measure"]["warmup"] + manifest["measure"]["iterations"]
    if isinstance(subject, Trainer):
        subject.run(PhaseClock(world, log, memory, sampler, progress), iterations)
    else:
        loop, recorder = PPOLoop(subject, manifest), Recorder(world, log, memory, sampler, progress)
        for iteration in range(iterations):
            loop.run_iteration(iteration, recorder)
    if sampler is not None:
        sampler.stop()
    leave()
    return model_seconds


def own_build(manifest: Dict[str, Any]) -> Build:
    """The engine or trainer of this worker that the manifest names. Raises ValueError for another backend."""
    name, device_type = manifest["backend"]["name"], manifest["measure"]["device"]
    if manifest["backend"]["kind"] == "trainer":
        return trainer_class(name, device_type)
    return engine_class(name, device_type, manifest["layout"].get("kernels", "torch"))


def _describe(subject: Optional[Subject], facts: Dict[str, Any], notes: List[str]) -> None:
    """Add the notes, work differences and versions that the engine or trainer reports."""
    facts["notes"] = notes + list(subject.notes if subject is not None else ())
    if isinstance(subject, Trainer):
        facts["work_differences"] = list(subject.work_differences)
        facts["packages"].update(subject.versions)
        if subject.configuration:
            facts["configuration"] = subject.configuration


def _start_sampler(world: World) -> Tuple[Optional[DeviceSampler], List[str]]:
    """The sampler of this rank's GPU, or why there is none; a CPU has none and needs no reason."""
    if world.device.type == "cpu":
        return None, []
    try:
        sampler = DeviceSampler(open_gpu(world.device))
    except (ImportError, RuntimeError) as error:
        return None, ["power and clocks are not sampled: {}".format(error)]
    sampler.start()
    return sampler, []
