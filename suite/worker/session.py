"""One rank's run from the first event to the last; imports torch and the stack, so it is imported late."""

import time
from typing import Any, Dict, List, Optional, Tuple

import torch

from suite.worker.ceilings import measure_ceilings
from suite.worker.engines import engine_class
from suite.worker.engines.base import Engine
from suite.worker.events import EventLog
from suite.worker.facts import collect_facts
from suite.worker.loop import PPOLoop
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler, open_gpu
from suite.worker.place import Place
from suite.worker.process import without_collector
from suite.worker.progress import Progress
from suite.worker.recorder import Recorder
from suite.worker.resident import resident_bytes
from suite.worker.world import World, join, leave


def run(manifest: Dict[str, Any], place: Place, log: EventLog, progress: Progress) -> float:
    """All iterations of the manifest; seconds that the model took to build. Whatever goes wrong is raised."""
    torch.set_num_threads(manifest["measure"]["threads_per_rank"])
    device_type = manifest["measure"]["device"]
    with without_collector():
        build = engine_class(manifest["backend"]["name"], device_type)
    world = join(place, device_type, manifest["limits"]["silence_seconds"])
    sampler, notes = _start_sampler(world)
    facts = collect_facts(world, manifest["stack"])
    facts["ceilings"] = measure_ceilings(world)
    baseline = resident_bytes()
    facts["resident_baseline_bytes"] = baseline
    memory = MemoryProbe(world.device, baseline)
    memory.reset()
    began = time.perf_counter()
    engine: Optional[Engine] = None
    try:
        engine = build(manifest, world)
    finally:
        # Also of a run whose model does not fit, a reader wants to know where that was.
        facts["notes"] = notes + list(engine.notes if engine is not None else ())
        log.emit("environment", facts=facts)
    model_seconds = time.perf_counter() - began
    loop = PPOLoop(engine, manifest)
    log.emit("memory", iteration=None, phase="setup", **memory.peaks())
    recorder = Recorder(world, log, memory, sampler, progress)
    for iteration in range(manifest["measure"]["warmup"] + manifest["measure"]["iterations"]):
        loop.run_iteration(iteration, recorder)
    if sampler is not None:
        sampler.stop()
    leave()
    return model_seconds


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
