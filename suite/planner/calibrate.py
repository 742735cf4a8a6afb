"""What the user's own runs teach the planner: constants of the device, the stack and its phases, by Bayesian updating.

What is thought before (``suite.planner.learnt``) is as wide as the errors of published rows that no fit had seen. Each
configuration that ran says something of it, with a noise that its own scatter and the model's misfit make: a few noisy
runs move little and narrow little, many agreeing ones of several shapes move and narrow much.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from pathlib import Path

import numpy as np

from suite.bundle.record import Record
from suite.bundle.store import DamagedBundle, find_bundles
from suite.planner.ask import Question
from suite.planner.hardware import Hardware
from suite.planner.iteration import predict
from suite.planner.learnt import FOUR_FIFTHS, KINDS, NINE_TENTHS, PHASE_MISFIT, STEP_MISFIT, before, moved
from suite.planner.parameters import Band, Learnt, Parameters
from suite.planner.predict_manifest import device_of, one_layout, predict_manifest
from suite.planner.space import Space, effects_of
from suite.planner.work import Column
from suite.spec.base import UsageError
from suite.spec.catalogue import find_device
from suite.spec.manifest import Manifest

#: torch's names of the dtypes that the planner's matrix products have, and the catalogue's
_HALF = {"bfloat16": "bf16", "float16": "fp16"}
#: Phases that tell of constants; a reference's pass tells of the same as the policy's.
_MEASURED = (*KINDS, "reference")
#: Phases that depend on who generates.
_GENERATING = ("sync", "generate")
#: Least scatter of a phase between runs, relative; and how far a timed product or copy is from what a model's reach.
_LEAST_SCATTER, _CEILING_NOISE = 0.02, 0.1
#: What the memory model leaves out of one configuration's peak, relative, and half the width of a 95 % interval.
_MEMORY_MISFIT, _INTERVAL = 0.05, 1.96
_HALF_OF_ALL = 0.6745


@dataclass(frozen=True)
class Configuration:
    """Runs of one manifest: seconds of each phase with their relative noise, and logarithms of how far peaks of memory
    are off."""

    space: Space
    seconds: dict[str, tuple[float, float]]
    peaks_off: tuple[float, ...]
    runs: int


def calibrated(asked: Question, folder: Path) -> Question:
    """The question with constants as they are known after the finished runs of its backend and device in ``folder``.

    Raises UsageError where the folder holds no such run.
    """
    runs = _runs(asked, folder)
    by_hash: dict[str, list[tuple[Manifest, Record]]] = defaultdict(list)
    for manifest, record in runs:
        by_hash[manifest.hash].append((manifest, record))
    found = [_configuration(asked, repeats) for repeats in by_hash.values()]
    configurations = [one for one in found if one is not None]
    prior = before(asked.parameters, asked.hardware)
    mean, covariance = _posterior(asked, prior, configurations, _ceilings_of(asked.hardware, runs))
    parameters = moved(asked.parameters, dict(zip(prior.names, mean.tolist(), strict=True)))
    learnt = prior.model_copy(
        update={
            "covariance": tuple(map(tuple, covariance.tolist())),
            "configurations": len(configurations),
            "runs": sum(one.runs for one in configurations),
        }
    )
    return replace(asked, parameters=_with_memory(parameters.model_copy(update={"learnt": learnt}), configurations))


def _posterior(
    asked: Question, prior: Learnt, configurations: Sequence[Configuration], ceilings: dict[str, float]
) -> tuple[Column, Column]:
    """The most probable movements of the constants' logarithms, which are normal about zero beforehand, and their
    covariance after what runs measured: phases of each configuration, and ``ceilings``. Normal too, by Laplace's
    approximation (MacKay, "Information Theory, Inference, and Learning Algorithms", 2003, chapter 27)."""
    from scipy.optimize import least_squares

    covariance = np.array(prior.covariance)
    phases = [each for one in configurations for each in one.seconds.values()]
    measured: Column = np.log([*(seconds for seconds, _ in phases), *ceilings.values()])
    noise: Column = np.array([*(noise for _, noise in phases), *(_CEILING_NOISE for _ in ceilings)])
    if not len(measured):
        return np.zeros(len(covariance)), covariance
    root = np.linalg.cholesky(covariance)

    def predicted(vector: Column) -> Column:
        parameters = moved(asked.parameters, dict(zip(prior.names, vector.tolist(), strict=True)))
        effects = effects_of(asked.hardware, asked.profile, parameters)
        found: list[float] = []
        for one in configurations:
            work, gen = replace(one.space.work, effects=effects), replace(one.space.gen, effects=effects)
            times = predict(work, gen, one.space.pairs, parameters.values).phases
            found += [float(times[phase][0]) for phase in one.seconds]
        return np.log([*found, *(parameters.values[name] for name in ceilings)])

    def residuals(whitened: Column) -> Column:
        return np.concatenate([whitened, (predicted(root @ whitened) - measured) / noise])

    found = least_squares(residuals, np.zeros(len(covariance)), diff_step=1e-4)
    return root @ found.x, root @ np.linalg.inv(found.jac.T @ found.jac) @ root.T


def _configuration(asked: Question, repeats: Sequence[tuple[Manifest, Record]]) -> Configuration | None:
    """``None`` for work that is not predicted."""
    manifest = repeats[0][0]
    expected = predict_manifest(manifest, device_of(repeats[0][1]), asked.parameters)
    if expected is None:
        return None
    each: dict[str, list[float]] = defaultdict(list)
    own_scatter: list[float] = []
    for _, record in repeats:
        rate = record.throughput.samples_per_second if record.throughput else None
        if rate is not None and rate.low and rate.high and rate.high > rate.low > 0:
            own_scatter.append(log(rate.high / rate.low) / (2 * _INTERVAL))
        for phase in _MEASURED:
            spent = getattr(record.phases, phase, None)
            if spent and spent.seconds and expected["phases"].get(phase, 0) > 0:
                each[phase].append(spent.seconds)
    if manifest.layout.generation != asked.manner.generation:
        each = {phase: seconds for phase, seconds in each.items() if phase not in _GENERATING}
    least = max([_LEAST_SCATTER, *own_scatter])
    peaks = [float(record.memory.peak_reserved_bytes or 0) for _, record in repeats if record.memory]
    own = replace(asked, shape=manifest.size, workload=manifest.workload, profile=replace(asked.profile, fp8=False))
    return Configuration(
        space=one_layout(own, manifest.work, manifest.layout),
        seconds={phase: _pooled(phase, seconds, least) for phase, seconds in each.items()},
        peaks_off=tuple(log(peak / float(expected["memory_bytes"])) for peak in peaks if peak > 0),
        runs=len(repeats),
    )


def _pooled(phase: str, seconds: Sequence[float], least: float) -> tuple[float, float]:
    """The geometric mean of repeats, and its relative noise: misfit of the configuration, and scatter over runs."""
    logs = np.log(seconds)
    misfit = STEP_MISFIT if phase == "train" else PHASE_MISFIT
    scatter = max(least, float(logs.std(ddof=1)) if len(logs) > 1 else 0.0)
    return exp(float(logs.mean())), sqrt(misfit**2 + scatter**2 / len(logs))


def _with_memory(parameters: Parameters, configurations: Sequence[Configuration]) -> Parameters:
    """A factor on peak memory, normal in its logarithm with the memory model's error beforehand, and what is left of
    that error; the precisions of prior and runs add up."""
    off = [(peak, _MEMORY_MISFIT**2 * len(one.peaks_off)) for one in configurations for peak in one.peaks_off]
    if not off:
        return parameters
    prior = parameters.bands["memory"].new
    spread = log(prior.high / prior.low) / (2 * FOUR_FIFTHS)
    precision = 1 / spread**2 + sum(1 / noise for _, noise in off)
    mean = sum(distance / noise for distance, noise in off) / precision
    left = sqrt(1 / precision + _MEMORY_MISFIT**2)
    reach, errors = exp(FOUR_FIFTHS * left), {"median": _HALF_OF_ALL * left, "p90": NINE_TENTHS * left}
    band = Band(low=1 / reach, high=reach, rows=len(off), groups=len(configurations), **errors)
    return parameters.model_copy(update={"memory_factor": exp(mean), "memory_band": band})


def _runs(asked: Question, folder: Path) -> list[tuple[Manifest, Record]]:
    found = []
    for bundle in find_bundles([folder]):
        try:
            manifest, record = bundle.manifest(), bundle.record()
        except DamagedBundle:
            continue
        if record is None or record.status != "ok" or manifest.backend.name != asked.profile.name:
            continue
        device = find_device(device_of(record) or "")
        if device is not None and device.name == asked.hardware.name:
            found.append((manifest, record))
    if not found:
        raise UsageError(f"{folder} has no finished run of {asked.profile.name} on {asked.hardware.name} to learn from")
    return found


def _ceilings_of(hardware: Hardware, runs: Sequence[tuple[Manifest, Record]]) -> dict[str, float]:
    """Shares of the device's peaks that were measured, by the constant that they tell of: the matrix product's of the
    peak in its own dtype, where that has 16 bits, the copy's of the bandwidth."""
    shares: dict[str, list[float]] = defaultdict(list)
    for _, record in runs:
        found = (record.environment.worker or {}).get("ceilings")
        if not isinstance(found, dict):
            continue
        precision = _HALF.get(str(found.get("matmul_dtype", "bfloat16")), "")  # older runs told none and measured bf16
        for name, measured, peak in (
            (f"matrix_{hardware.architecture}", "matmul_flops", hardware.peak_by_precision.get(precision)),
            ("memory_bandwidth", "copy_bytes_per_second", hardware.memory_bandwidth),
        ):
            value = found.get(measured)
            if peak and isinstance(value, (int, float)) and value > 0:
                shares[name].append(value / peak)
    return {name: float(np.median(each)) for name, each in shares.items()}
