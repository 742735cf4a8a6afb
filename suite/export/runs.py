"""The table of runs: one row a run, whatever became of it."""

from collections.abc import Iterator
from typing import get_args

from suite.bundle.noise_model import Noise, Spread
from suite.bundle.record import Counts, LengthSummary, Verdict
from suite.export.columns import (
    KEYS,
    Column,
    Kind,
    Source,
    driver,
    layout,
    measure,
    of_manifest,
    of_record,
    part,
    predicted,
    worker,
)
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


def _rate(name: str, unit: str, meaning: str) -> Iterator[Column]:
    yield Column(name, "number", unit, f"{meaning}; {_NO_ITERATION}", part("throughput", name, "value"))
    within = "95 % bound from the run's own iterations; null: as the rate, or only one iteration counts"
    yield Column(f"{name}_low", "number", unit, f"lower {within}", part("throughput", name, "low"))
    yield Column(f"{name}_high", "number", unit, f"upper {within}", part("throughput", name, "high"))


def _lengths(side: str) -> Iterator[Column]:
    for field in LengthSummary.model_fields:
        kind: Kind = "number" if field in ("mean", "at_cap") else "integer"
        read = part("lengths", side, field)
        name = f"{side}_length_{field}"
        if field == "at_cap":
            meaning = f"of samples whose {side} is at the distribution's cap; null: even samples, or no cap"
            yield Column(name, kind, "share", meaning, read)
        else:
            meaning = f"{field} of the lengths of the samples' {side}s; null: all are of one length"
            yield Column(name, kind, "tokens", meaning, read)


def _noise() -> Iterator[Column]:
    """What disturbed the counted iterations: of each figure the mean over ranks, and the worst rank's."""
    for name, info in Noise.model_fields.items():
        if Spread in get_args(info.annotation):
            unit = "share" if name.endswith("_share") else ""
            for field, of in (("mean", "mean over ranks"), ("worst", "of the worst rank")):
                meaning = f"{str(info.description).removesuffix('; null without one')} ({of}); null: no rank tells it"
                yield Column(f"noise_{name}_{field}", "number", unit, meaning, part("noise", name, field))


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
    for name in Counts.model_fields:
        unit = "tokens" if name.endswith("_tokens") else ""
        yield Column(name, "integer", unit, f"{meanings[name]}; null: not counted", part("counts", name))


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
        yield Column(name, "integer", "bytes", f"{meaning}{of}; null: not known", part("memory", name))
    for name, over in (("efficiency", "reserved (on a CPU: allocated)"), ("efficiency_allocated", "allocated")):
        meaning = f"theoretical minimum over peak {over}; null: one of them is not known"
        yield Column(f"memory_{name}", "number", "ratio", meaning, part("memory", name))
    meaning = (
        "allocations that failed and were tried again, all ranks; above 0 the device was all but full; null: not told"
    )
    yield Column("allocation_retries", "integer", "", meaning, part("memory", "allocation_retries"))


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
        yield Column(name, "number", unit, meaning, part("compute", name))


def _settings() -> Iterator[Column]:
    meaning = "`engine`: the suite's own iteration on the stack; `trainer`: the stack's own"
    yield Column("backend_kind", "text", "", meaning, part("run", "backend_kind"), True, ("engine", "trainer"))
    meaning = "of the model by its shape, without the value head"
    yield Column("parameters", "integer", "", meaning, of_manifest(lambda it: parameter_count(it.size).total), True)
    yield Column("scaling", "text", "", "of the workload", part("run", "scaling"), True, ("weak", "strong"))
    yield Column("track", "text", "", "kind of fairness claimed", part("run", "track"), True, get_args(Track))
    yield Column("plan", "text", "", "equal: of one request", part("run", "plan"), True)
    yield Column("launcher", "text", "", "what started the ranks; null: it was never launched", part("run", "launcher"))
    for name in ("nodes", "devices_per_node"):
        yield Column(name, "integer", "", name.replace("_", " "), layout(name), True)
    for name in ("tensor", "pipeline", "data", "expert"):
        yield Column(f"{name}_parallel", "integer", "", f"{name} parallel degree", layout(name), True)
    yield Column("zero_stage", "integer", "", "of ZeRO, 0 to 3; 3 of FSDP2", layout("zero_stage"), True)
    yield Column("recompute", "text", "", "of activations", layout("recompute"), True)
    meaning = "what generates: `hf`, the stack's own loop, or an engine"
    yield Column("generation", "text", "", meaning, layout("generation"), True)
    yield Column("placement", "text", "", "`split`: some ranks only generate", layout("placement"), True)
    for name in ("seed", "threads_per_rank"):
        yield Column(name, "integer", "", name.replace("_", " "), measure(name), True)


def _outcome() -> Iterator[Column]:
    yield Column("started", "time", "UTC", "launch of the run; null: no event tells it", part("run", "started"))
    yield Column("ended", "time", "UTC", "end of the run; null: no event tells it", part("run", "ended"))
    ok = "null: the run did not fail"
    yield Column(
        "failure_kind", "text", "", f"what failed; {ok}", part("failure", "kind"), values=get_args(FailureKind)
    )
    yield Column("failure_phase", "text", "", f"in which phase; {ok}, or not known", part("failure", "phase"))
    yield Column("failure_iteration", "integer", "", f"in which; {ok}, or not known", part("failure", "iteration"))
    yield Column("failure_evidence", "texts", "", f"the lines that prove it; {ok}", part("failure", "evidence"))
    meaning = "what speaks against the figures; empty: nothing; null: as `validity`"
    yield Column("validity_reasons", "texts", "", meaning, part("validity", "reasons"))
    meaning, verdict = "of the counted iterations; null: too few to tell", part("steady_state", "verdict")
    yield Column("steady_state", "text", "", meaning, verdict, values=get_args(Verdict))
    yield Column("steady_reasons", "texts", "", "why not steady", part("steady_state", "reasons"), True)
    yield Column("notes", "texts", "", "what a reader of the figures must know", part("notes"), True)
    meaning = "that the user gave it (`suite runs tag`), sorted"
    yield Column("tags", "texts", "", meaning, lambda source: source.tags, True)


def _iterations() -> Iterator[Column]:
    completed = of_record(lambda record: len(record.iterations.seconds))
    yield Column("iterations_completed", "integer", "", "warm-up and void ones in", completed, True)
    yield Column("iterations_warmup", "integer", "", "left out at the start", part("steady_state", "warmup"), True)
    yield Column("iterations_counted", "integer", "", "those figures are of", part("steady_state", "iterations"), True)
    meaning = "after the warm-up, that skipped optimizer steps and do not count; null: no rank tells"
    void = of_record(lambda record: None if record.void_iterations is None else len(record.void_iterations))
    yield Column("iterations_void", "integer", "", meaning, void)
    meaning = f"mean over the counted iterations, of the slowest rank each; {_NO_ITERATION}"
    yield Column("iteration_seconds", "number", "seconds", meaning, _iteration_seconds)


def _generation() -> Iterator[Column]:
    meaning = "of all positions that train, those of padding; null: even samples"
    yield Column("padding_share", "number", "share", meaning, part("padding", "share"))
    meaning = "samples lie end to end in a row; null: even samples"
    yield Column("packed", "boolean", "", meaning, part("padding", "packed"))
    meanings = {
        "idle_slot_share": ("share", "of the token steps until the longest sample of each replica ends, idle ones"),
        "idle_slot_seconds": ("seconds", "from a sample's own end to the end of its generation, mean"),
        "logprob_difference_mean": ("", "between the generation engine's log-probs and the policy's, mean"),
        "logprob_difference_max": ("", "between the generation engine's log-probs and the policy's, greatest"),
        "effective_sample_size": ("share", "of importance weights between the two"),
    }
    for name, (unit, meaning) in meanings.items():
        yield Column(name, "number", unit, f"{meaning}; {_UNKNOWN}", part("rollout", name))
    meaning = "updates of the weights that samples are behind, the most of any; null: no rank tells"
    yield Column("staleness", "integer", "", meaning, part("staleness"))
    for name in ("exposed_generate_seconds", "generation_busy_seconds"):
        what = "that training waits for samples" if name.startswith("exposed") else "that the generation side generates"
        yield Column(name, "number", "seconds", f"{what}, of an iteration; {_OF_SPLIT}", part("overlap", name))


def _energy() -> Iterator[Column]:
    meaning = "of the GPU boards over the counted iterations, all ranks; null: not sampled, as on a CPU"
    yield Column("energy_joules", "number", "joules", meaning, part("energy", "joules"))
    meaning = "`energy_joules` over the samples; null: as that"
    yield Column("energy_joules_per_sample", "number", "joules", meaning, part("energy", "joules_per_sample"))
    meaning = "whether it is of this run alone and whole; null: not sampled"
    yield Column("energy_valid", "boolean", "", meaning, part("energy", "valid"))
    yield Column("energy_reasons", "texts", "", "why not valid; null: not sampled", part("energy", "reasons"))


def _predictions() -> Iterator[Column]:
    meanings = {
        "samples_per_second": ("samples/s", "samples_per_second"),
        "tokens_per_second": ("tokens/s", "tokens_per_second"),
        "iteration_seconds": ("seconds", "iteration_seconds"),
        "memory_bytes": ("bytes", "peak memory of a device"),
    }
    for name, (unit, of) in meanings.items():
        meaning = f"{of} by the planner before the run; null: it made no prediction, as for a CPU"
        yield Column(f"predicted_{name}", "number", unit, meaning, predicted(name))


def _environment() -> Iterator[Column]:
    where = "null: not told, as by a run that failed early"
    yield Column("device_name", "text", "", f"of rank 0's accelerator; {where}, or a CPU", worker("device", "name"))
    yield Column("device_memory_bytes", "integer", "bytes", f"of rank 0's; {where}", worker("device", "memory_bytes"))
    yield Column("cpu_model", "text", "", f"of rank 0's processor; {where}", worker("cpu", "model"))
    yield Column("cpu_cores", "integer", "", f"of rank 0's host; {where}", worker("cpu", "cores"))
    yield Column("host_memory_bytes", "integer", "bytes", f"of rank 0's host; {where}", worker("memory_bytes"))
    for name in ("kernel", "driver", "cuda", "nccl", "python"):
        yield Column(f"{name}_version", "text", "", f"of rank 0; {where}", worker(name))
    for package in ("torch", "deepspeed", "megatron-core", "transformers"):
        name = f"{package.replace('-', '_')}_version"
        yield Column(name, "text", "", f"of rank 0; {where}, or not installed", worker("packages", package))
    yield Column("image_digest", "text", "", "of the image in its registry; null: none", driver("image", "digest"))
    yield Column("suite_version", "text", "", f"that drove the run; {where}", driver("suite_version"))
    yield Column("git_commit", "text", "", f"of the suite where it was a checkout; {where}", driver("git_commit"))


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
