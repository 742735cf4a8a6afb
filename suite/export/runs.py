"""The table of runs: one row a run, whatever became of it."""

from collections.abc import Iterator
from typing import get_args

from msgspec import structs

from suite.bundle.parts import Noise, Spread
from suite.bundle.record import Counts, LengthSummary, Verdict
from suite.export.columns import KEYS, Column, Kind, Source
from suite.launch.outcome import FailureKind
from suite.report.facts.pool import counted_seconds
from suite.spec.base import Track
from suite.theory.parameters import parameter_count

_NO_ITERATION = "null: no iteration counts"
_UNKNOWN = "null: not told"
_OF_SPLIT = "null: not a split run"


def _iteration_seconds(source: Source) -> float | None:
    """As a report's row of this run alone has it."""
    seconds = counted_seconds(source.entry.record)
    return sum(seconds) / len(seconds) if seconds else None


def _void_iterations(source: Source) -> int | None:
    void = source.entry.record.void_iterations
    return None if void is None else len(void)


def _parameters(source: Source) -> int:
    return parameter_count(source.entry.manifest.size).total


def _rate(name: str, unit: str, meaning: str) -> Iterator[Column]:
    yield Column(name, "number", unit, f"{meaning}; {_NO_ITERATION}", f"record.throughput.{name}.value")
    within = "95 % bound from the run's own iterations; null: as the rate, or only one iteration counts"
    yield Column(f"{name}_low", "number", unit, f"lower {within}", f"record.throughput.{name}.low")
    yield Column(f"{name}_high", "number", unit, f"upper {within}", f"record.throughput.{name}.high")


def _lengths(side: str) -> Iterator[Column]:
    for field in LengthSummary.__struct_fields__:
        kind: Kind = "number" if field in ("mean", "at_cap") else "integer"
        unit, meaning = "tokens", f"{field} of the lengths of the samples' {side}s; null: all are of one length"
        if field == "at_cap":
            unit = "share"
            meaning = f"of samples whose {side} is at the distribution's cap; null: even samples, or no cap"
        yield Column(f"{side}_length_{field}", kind, unit, meaning, f"record.lengths.{side}.{field}")


def _noise() -> Iterator[Column]:
    """What disturbed the counted iterations: of each figure the mean over ranks, and the worst rank's."""
    for each in structs.fields(Noise):
        name, (kind, info) = each.name, get_args(each.type)
        if Spread in get_args(kind):
            unit = "share" if name.endswith("_share") else ""
            for field, of in (("mean", "mean over ranks"), ("worst", "of the worst rank")):
                meaning = f"{info.description.removesuffix('; null without one')} ({of}); null: no rank tells it"
                yield Column(f"noise_{name}_{field}", "number", unit, meaning, f"record.noise.{name}.{field}")


def _counts() -> Iterator[Column]:
    meanings = {
        "samples": "samples of one iteration, over all replicas",
        "prompt_tokens": "of one iteration",
        "response_tokens": "of one iteration",
        "padded_tokens": "positions that hold padding, of one iteration",
        "trained_tokens": "positions through forward and backward in one iteration, over its epochs",
        "optimizer_steps": "of one iteration",
        "trainable_parameters": "unpadded, with the value head, as the run counted them",
        "total_parameters": "of the policy with its value head, unpadded, as the run counted them",
    }
    for name in Counts.__struct_fields__:
        unit = "tokens" if name.endswith("_tokens") else ""
        yield Column(name, "integer", unit, f"{meanings[name]}; null: not counted", f"record.counts.{name}")


def _memory() -> Iterator[Column]:
    meanings = {
        "peak_allocated_bytes": "in use by tensors; on a CPU resident above the start",
        "peak_reserved_bytes": "held by the caching allocator, none on a CPU",
        "peak_device_bytes": "used on the whole device, others' in; not on a CPU",
        "peak_resident_bytes": "resident in host memory of a rank's process",
        "resident_baseline_bytes": "resident before the model was built",
        "theoretical_minimum_bytes": "the least that the layout needs on a device, computed",
    }
    for name, meaning in meanings.items():
        of = "" if name == "theoretical_minimum_bytes" else ", greatest of all ranks"
        yield Column(name, "integer", "bytes", f"{meaning}{of}; null: not known", f"record.memory.{name}")
    for name, over in (("efficiency", "reserved (on a CPU: allocated)"), ("efficiency_allocated", "allocated")):
        meaning = f"theoretical minimum over peak {over}; null: one of them is not known"
        yield Column(f"memory_{name}", "number", "ratio", meaning, f"record.memory.{name}")
    meaning = (
        "allocations that failed and were tried again, all ranks; above 0 the device was all but full; null: not told"
    )
    yield Column("allocation_retries", "integer", "", meaning, "record.memory.allocation_retries")


def _compute() -> Iterator[Column]:
    no_peak = "null: not known, as on a CPU"
    meanings = {
        "model_flops": ("FLOPs", "of one iteration, all ranks; null: not counted"),
        "hardware_flops": ("FLOPs", "as `model_flops`, recomputed work counted; null: not counted"),
        "hardware_flops_causal": (
            "FLOPs",
            "as `hardware_flops`, with the attention that a causal mask leaves; null: not counted, or an older bundle",
        ),
        "peak_flops": ("FLOP/s", "of one device at the run's precision, from its maker; null: not known, as of a CPU"),
        "mfu": ("ratio", f"model FLOPs over what the devices could; {no_peak}"),
        "hfu": ("ratio", f"hardware FLOPs over what the devices could; {no_peak}"),
        "hfu_causal": ("ratio", f"causal hardware FLOPs over what the devices could; {no_peak}"),
        "mbu": ("ratio", f"bytes read in decoding over what the device's memory could; {no_peak}"),
    }
    for name, (unit, meaning) in meanings.items():
        yield Column(name, "number", unit, meaning, f"record.compute.{name}")


def _settings() -> Iterator[Column]:
    meaning = "`engine`: the suite's own iteration on the stack; `trainer`: the stack's own"
    yield Column("backend_kind", "text", "", meaning, "record.run.backend_kind", True, ("engine", "trainer"))
    yield Column("parameters", "integer", "", "of the model by its shape, without the value head", _parameters, True)
    yield Column("scaling", "text", "", "of the workload", "record.run.scaling", True, ("weak", "strong"))
    yield Column("track", "text", "", "kind of fairness claimed", "record.run.track", True, get_args(Track))
    yield Column("plan", "text", "", "equal: of one request", "record.run.plan", True)
    yield Column("launcher", "text", "", "what started the ranks; null: it was never launched", "record.run.launcher")
    for name in ("nodes", "devices_per_node"):
        yield Column(name, "integer", "", name.replace("_", " "), f"manifest.layout.{name}", True)
    for name in ("tensor", "pipeline", "data", "expert"):
        yield Column(f"{name}_parallel", "integer", "", f"{name} parallel degree", f"manifest.layout.{name}", True)
    yield Column("zero_stage", "integer", "", "of ZeRO, 0 to 3; 3 of FSDP2", "manifest.layout.zero_stage", True)
    yield Column("recompute", "text", "", "of activations", "manifest.layout.recompute", True)
    meaning = "what generates: `hf`, the stack's own loop, or an engine"
    yield Column("generation", "text", "", meaning, "manifest.layout.generation", True)
    yield Column("placement", "text", "", "`split`: some ranks only generate", "manifest.layout.placement", True)
    for name in ("seed", "threads_per_rank"):
        yield Column(name, "integer", "", name.replace("_", " "), f"manifest.measure.{name}", True)


def _outcome() -> Iterator[Column]:
    yield Column("started", "time", "UTC", "launch of the run; null: no event tells it", "record.run.started")
    yield Column("ended", "time", "UTC", "end of the run; null: no event tells it", "record.run.ended")
    ok = "null: the run did not fail"
    yield Column("failure_kind", "text", "", f"what failed; {ok}", "record.failure.kind", values=get_args(FailureKind))
    yield Column("failure_phase", "text", "", f"in which phase; {ok}, or not known", "record.failure.phase")
    yield Column("failure_iteration", "integer", "", f"in which; {ok}, or not known", "record.failure.iteration")
    yield Column("failure_evidence", "texts", "", f"the lines that prove it; {ok}", "record.failure.evidence")
    meaning = "what speaks against the figures; empty: nothing; null: as `validity`"
    yield Column("validity_reasons", "texts", "", meaning, "record.validity.reasons")
    meaning, verdicts = "of the counted iterations; null: too few to tell", get_args(Verdict)
    yield Column("steady_state", "text", "", meaning, "record.steady_state.verdict", values=verdicts)
    yield Column("steady_reasons", "texts", "", "why not steady", "record.steady_state.reasons", True)
    yield Column("notes", "texts", "", "what a reader of the figures must know", "record.notes", True)
    meaning = "that the user gave it (`suite runs tag`), sorted"
    yield Column("tags", "texts", "", meaning, lambda source: source.tags, True)


def _iterations() -> Iterator[Column]:
    meaning = "warm-up and void ones in"
    yield Column(
        "iterations_completed", "integer", "", meaning, lambda it: len(it.entry.record.iterations.seconds), True
    )
    yield Column("iterations_warmup", "integer", "", "left out at the start", "record.steady_state.warmup", True)
    yield Column("iterations_counted", "integer", "", "those figures are of", "record.steady_state.iterations", True)
    meaning = "after the warm-up, that skipped optimizer steps and do not count; null: no rank tells"
    yield Column("iterations_void", "integer", "", meaning, _void_iterations)
    meaning = f"mean over the counted iterations, of the slowest rank each; {_NO_ITERATION}"
    yield Column("iteration_seconds", "number", "seconds", meaning, _iteration_seconds)


def _generation() -> Iterator[Column]:
    meaning = "of all positions that train, those of padding; null: even samples"
    yield Column("padding_share", "number", "share", meaning, "record.padding.share")
    meaning = "samples lie end to end in a row; null: even samples"
    yield Column("packed", "boolean", "", meaning, "record.padding.packed")
    meanings = {
        "idle_slot_share": ("share", "of the token steps until the longest sample of each replica ends, idle ones"),
        "idle_slot_seconds": ("seconds", "from a sample's own end to the end of its generation, mean"),
        "logprob_difference_mean": ("", "between the generation engine's log-probs and the policy's, mean"),
        "logprob_difference_max": ("", "between the generation engine's log-probs and the policy's, greatest"),
        "effective_sample_size": ("share", "of importance weights between the two"),
    }
    for name, (unit, meaning) in meanings.items():
        yield Column(name, "number", unit, f"{meaning}; {_UNKNOWN}", f"record.rollout.{name}")
    meaning = "updates of the weights that samples are behind, the most of any; null: no rank tells"
    yield Column("staleness", "integer", "", meaning, "record.staleness")
    for name in ("exposed_generate_seconds", "generation_busy_seconds"):
        what = "that training waits for samples" if name.startswith("exposed") else "that the generation side generates"
        yield Column(name, "number", "seconds", f"{what}, of an iteration; {_OF_SPLIT}", f"record.overlap.{name}")


def _energy() -> Iterator[Column]:
    meaning = "of the GPU boards over the counted iterations, all ranks; null: not sampled, as on a CPU"
    yield Column("energy_joules", "number", "joules", meaning, "record.energy.joules")
    meaning = "`energy_joules` over the samples; null: as that"
    yield Column("energy_joules_per_sample", "number", "joules", meaning, "record.energy.joules_per_sample")
    meaning = "whether it is of this run alone and whole; null: not sampled"
    yield Column("energy_valid", "boolean", "", meaning, "record.energy.valid")
    yield Column("energy_reasons", "texts", "", "why not valid; null: not sampled", "record.energy.reasons")


def _predictions() -> Iterator[Column]:
    units = {"samples_per_second": "samples/s", "tokens_per_second": "tokens/s", "iteration_seconds": "seconds"}
    for name, unit in {**units, "memory_bytes": "bytes"}.items():
        of = "peak memory of a device" if name == "memory_bytes" else name
        meaning = f"{of} by the planner before the run; null: it made no prediction, as for a CPU"
        yield Column(f"predicted_{name}", "number", unit, meaning, f"record.predicted.{name}")


def _environment() -> Iterator[Column]:
    where = "null: not told, as by a run that failed early"
    worker, driver = "record.environment.worker", "record.environment.driver"
    yield Column("device_name", "text", "", f"of rank 0's accelerator; {where}, or a CPU", f"{worker}.device.name")
    yield Column("device_memory_bytes", "integer", "bytes", f"of rank 0's; {where}", f"{worker}.device.memory_bytes")
    yield Column("cpu_model", "text", "", f"of rank 0's processor; {where}", f"{worker}.cpu.model")
    yield Column("cpu_cores", "integer", "", f"of rank 0's host; {where}", f"{worker}.cpu.cores")
    yield Column("host_memory_bytes", "integer", "bytes", f"of rank 0's host; {where}", f"{worker}.memory_bytes")
    for name in ("kernel", "driver", "cuda", "nccl", "python"):
        yield Column(f"{name}_version", "text", "", f"of rank 0; {where}", f"{worker}.{name}")
    for package in ("torch", "deepspeed", "megatron-core", "transformers"):
        name = f"{package.replace('-', '_')}_version"
        yield Column(name, "text", "", f"of rank 0; {where}, or not installed", f"{worker}.packages.{package}")
    yield Column("image_digest", "text", "", "of the image in its registry; null: none", f"{driver}.image.digest")
    yield Column("suite_version", "text", "", f"that drove the run; {where}", f"{driver}.suite_version")
    yield Column("git_commit", "text", "", f"of the suite where it was a checkout; {where}", f"{driver}.git_commit")


#: What was asked for and where it ran, as opposed to what came of it.
SETTINGS = frozenset(column.name for column in (*KEYS, *_settings(), *_environment()))
RUN_COLUMNS: tuple[Column, ...] = (
    *KEYS,
    *_settings(),
    *_outcome(),
    *_iterations(),
    *_rate("samples_per_second", "samples/s", "total work over total time of the counted iterations"),
    *_rate("tokens_per_second", "tokens/s", "prompt and response tokens over the time of the counted iterations"),
    *_rate("tokens_per_second_per_device", "tokens/s", "`tokens_per_second` over ranks"),
    *_counts(),
    *_memory(),
    *_compute(),
    *_energy(),
    *_lengths("prompt"),
    *_lengths("response"),
    *_generation(),
    *_predictions(),
    *_noise(),
    *_environment(),
)
