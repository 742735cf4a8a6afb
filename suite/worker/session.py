"""One rank's run from the first event to the last; imports torch and the stack, so it is imported late."""

import os
import time
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, List, Optional, Union

import torch

from suite.worker.ceilings import measure_ceilings, measure_network
from suite.worker.devices import check_torch_devices, find_idle
from suite.worker.engines.base import Engine
from suite.worker.events import EventLog, Progress
from suite.worker.facts import allows_tf32, collect_facts
from suite.worker.generation.base import Generator
from suite.worker.generation.vllm import find_generator
from suite.worker.identity import identity
from suite.worker.loop import Loop
from suite.worker.manifest import asked_iterations
from suite.worker.memory import Communicators, MemoryProbe
from suite.worker.nvml import DeviceSampler, NvmlGpu, find_gpu
from suite.worker.process import resident_bytes, without_collector
from suite.worker.profile import ProfilingRecorder
from suite.worker.rank import RankIdentity
from suite.worker.recorder import Recorder
from suite.worker.registry import backend_class
from suite.worker.split.sides import Split, find_side
from suite.worker.topology import bind, left_alone
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.scratch import give_back, use_own_folder
from suite.worker.turns import Turns, open_turns
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
    is_engine = manifest["backend"]["kind"] != "trainer"
    if not is_engine:
        use_own_folder()  # before the stack asks where to write
    with without_collector():
        build = (find_build or own_build)(manifest)
        getattr(build, "load", lambda _: None)(manifest)
        progress.beat()
        side = find_side(manifest["layout"], identity) if is_engine else None
        make_generator = find_generator(manifest) if is_engine and (side is None or side.generates) else None
    progress.beat()
    if device_type == "cuda":
        check_torch_devices(os.environ, torch.cuda.device_count())
    # ranks of a trainer that has its processes elsewhere meet over gloo and leave the device alone
    apart = getattr(build, "own_processes", False)
    computes_here = device_type == "cpu" or not apart  # on the device that the run is about
    rank_device = device_type if computes_here else "cpu"
    turns = open_turns(os.environ, manifest, identity.rank)
    notes: List[str] = []
    gpu = find_gpu(identity.local_rank, notes) if device_type == "cuda" else None
    idle = find_idle(device_type, gpu)  # before the first turn, when no row has used a GPU
    turns.ask()
    affinity, others = _place(manifest["measure"], identity, apart), _held_since(idle, gpu, turns)
    communicators = Communicators(rank_device, identity.local_rank)
    communicators.note("before_join")
    split = None if side is None else Split(manifest, identity, side, progress)
    world = join(identity, rank_device, manifest["limits"]["silence_seconds"]) if split is None else split.world
    communicators.note("joined")
    progress.beat()
    shown = World(*identity, world.device if computes_here else torch.device("cuda", identity.local_rank))
    notes += [] if split is None else split.notes
    sampler = None if gpu is None else DeviceSampler(gpu)
    if sampler is not None:
        sampler.start()
    facts = collect_facts(shown, manifest["stack"], manifest.get("stack_code", ()))
    facts["affinity"], facts["idle"] = affinity, idle
    each, cpus, ranks = facts["threads"]["torch"], facts["threads"]["cpus"], affinity["ranks"]
    if each * ranks > cpus:
        notes.append("{} threads for each of {} ranks, but {} CPUs for all of them".format(each, ranks, cpus))
    facts["ceilings"] = measure_ceilings(world, manifest["measure"]["precision"]) if computes_here else None
    progress.beat()
    subject: Optional[Subject] = None
    generator: Optional[Generator] = None
    try:
        facts["network"] = measure_network(world) if computes_here else None
        communicators.note("network_measured")
        progress.beat()
        baseline = resident_bytes()
        if not apart:  # where others do the work, the peaks are theirs, and this rank's own says nothing of them
            facts["resident_baseline_bytes"] = baseline
        sleeps = bool(manifest["layout"].get("engine_sleep"))
        memory: Any = MemoryProbe(world.device, baseline, sleeps, others)
        memory.reset()
        began = time.perf_counter()
        with _beating(progress):
            if split is not None:
                subject, generator = split.build(build, make_generator)
            else:
                Trainer.waiting_for = staticmethod(progress.tell)
                subject = build(manifest, world)
                if make_generator is not None and isinstance(subject, Engine):
                    generator = make_generator(manifest, world, subject, progress)
            if generator is not None:
                notes += generator.notes
                memory.note()
                generator.sleep()
            if isinstance(subject, Trainer):
                memory = subject.make_memory() or memory
        if not sleeps:  # of memory that sleeps torch counts what the device has back
            communicators.note("built")
    finally:
        # Emitted also where the network or the model fails: a reader wants to know where that was.
        facts["communicators"] = communicators.facts()
        facts["allow_tf32"] = allows_tf32() if device_type == "cuda" else None
        _describe(subject, facts, notes)
        log.emit("environment", facts=facts)
    model_seconds = time.perf_counter() - began
    log.emit("memory", iteration=None, phase="setup", **memory.peaks())
    memory.forget_setup()
    iterations = asked_iterations(manifest)
    if isinstance(subject, Trainer):
        subject.run(subject.make_clock(world, log, memory, sampler, progress, turns), iterations)
    else:
        recorder = Recorder(world, log, memory, sampler, progress, turns)
        recorder.watch(*subject.models)
        if split is not None:
            split.run(subject, generator, recorder)
        else:
            loop = Loop(subject, manifest, generator)
            for iteration in range(iterations):
                loop.run_iteration(iteration, recorder)
    if sampler is not None:
        sampler.stop()
    if manifest["measure"].get("profile", False):
        profiling = ProfilingRecorder(world, log.folder, progress)
        profiling.watch(*subject.models)
        loop.run_iteration(iterations, profiling)
    leave()
    give_back()
    return model_seconds


def load_engine(name: str, device_type: str, kernels: str, architecture: str, *packages: str) -> None:
    """Import what ranks have in common that are forked from this process, and note whose code it is."""
    for package in packages:
        identity(package)
    manifest = {"size": {"architecture": architecture}, "work": {}, "layout": {}}
    backend_class(name, device_type, kernels).load(manifest)


def own_build(manifest: Dict[str, Any]) -> Build:
    kernels = manifest["layout"].get("kernels", "torch")
    return backend_class(manifest["backend"]["name"], manifest["measure"]["device"], kernels)


def _beating(progress: Progress) -> ContextManager[Any]:
    """Each parameter that a module gets shows that a model is still being built; torch before 2.0 cannot tell."""
    register = getattr(torch.nn.modules.module, "register_module_parameter_registration_hook", None)
    return nullcontext() if register is None else register(lambda *_: progress.beat())


def _place(measure: Dict[str, Any], identity: RankIdentity, apart: bool) -> Dict[str, Any]:
    """Bind this rank near its GPU where the manifest asks for it; the ``affinity`` facts in any case.

    ``apart``: other processes do its work, which would be bound with it to the CPUs of one GPU.
    """
    if apart:
        return left_alone("the trainer places processes of its own", identity.local_world_size)
    if measure.get("bind") != "near-gpu":
        return left_alone("not asked for", identity.local_world_size)
    return bind([find_gpu(rank) for rank in range(identity.local_world_size)], identity.local_rank)


def _held_since(idle: Optional[Dict[str, Any]], gpu: Optional[NvmlGpu], turns: Turns) -> int:
    """Bytes of this rank's GPU that rows whose turn came before have taken since it was found ``idle``."""
    before = (idle or {}).get("used_bytes")
    used = None if gpu is None or not turns.are_given else gpu.used_bytes()
    return 0 if used is None or before is None else max(0, used - before)


def _describe(subject: Optional[Subject], facts: Dict[str, Any], notes: List[str]) -> None:
    """Add the notes, work differences and versions that the engine or trainer reports."""
    facts["notes"] = notes + list(subject.notes if subject is not None else ())
    if isinstance(subject, Trainer):
        facts["work_differences"] = list(subject.work_differences)
        facts["packages"].update(subject.versions)
        told = {
            name: getattr(subject, name) for name in ("lacking_phases", "unscored", "configuration", "experimental")
        }
        facts.update({name: value for name, value in {**told, "clock": subject.timed_by}.items() if value})
