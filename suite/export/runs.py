"""The table of runs: one row a run, whatever became of it."""

from collections.abc import Iterator
from typing import get_args, get_type_hints

from suite.bundle.parts import Noise, Spread
from suite.bundle.record import LengthSummary, Rollout
from suite.export.columns import KEYS, TAGS, Column, column, columns
from suite.report.facts.entry import Entry
from suite.report.facts.pool import counted_seconds
from suite.theory.parameters import parameter_count


def _iteration_seconds(run: Entry) -> float | None:
    """As a report's row of this run alone has it."""
    seconds = counted_seconds(run.record)
    return sum(seconds) / len(seconds) if seconds else None


def _void_iterations(run: Entry) -> int | None:
    void = run.record.void_iterations
    return None if void is None else len(void)


def _rate(name: str, meaning: str) -> Iterator[Column]:
    way = f"record.throughput.{name}"
    yield column(f"{way}.value", meaning, name)
    for bound, within in {"low": "lower", "high": "upper"}.items():
        meaning = f"{within} 95 % bound from the run's own iterations; null: as the rate, or only one iteration counts"
        yield column(f"{way}.{bound}", meaning, f"{name}_{bound}")


def _noise() -> Iterator[Column]:
    """Of each figure the mean over ranks, and the worst rank's."""
    for name, kind in get_type_hints(Noise).items():
        if Spread in get_args(kind):
            yield from columns(f"record.noise.{name}", ("mean", "worst"), prefix=f"noise_{name}_")


_BY_SHAPE = "of the model by its shape, without the value head"
_SETTINGS = (
    column("record.run.backend_kind", "`engine`: the suite's own iteration on the stack; `trainer`: the stack's own"),
    Column("parameters", "integer", _BY_SHAPE, lambda run: parameter_count(run.manifest.size).total, True),
    column("record.run.scaling", "of the workload"),
    column("record.run.track", "kind of fairness claimed"),
    column("record.run.plan"),
    column("record.run.launcher", "what started the ranks; null: it was never launched"),
    *columns("manifest.layout", ("nodes", "devices_per_node")),
    *(column(f"manifest.layout.{name}", name=f"{name}_parallel") for name in ("tensor", "pipeline", "data", "expert")),
    column("manifest.layout.zero_stage", "of ZeRO, 0 to 3; 3 of FSDP2"),
    column("manifest.layout.recompute", "of activations"),
    column("manifest.layout.generation", "what generates: `hf`, the stack's own loop, or an engine"),
    column("manifest.layout.placement", "`split`: some ranks only generate"),
    *columns("manifest.measure", ("seed", "threads_per_rank")),
)
_ALL = "warm-up and void ones in"
_VOID = "after the warm-up, that skipped optimizer steps and do not count; null: no rank tells"
_SECONDS = "mean over the counted iterations, of the slowest rank each; null: no iteration counts"
_PARAMETERS = "unpadded, with the value head, as the run counted them; null: not counted"
_NO_FAILURE = "null: the run did not fail"
_COURSE = (
    column("record.run.started", "launch of the run; null: no event tells it", kind="time"),
    column("record.run.ended", "end of the run; null: no event tells it", kind="time"),
    column("record.failure.kind", f"what failed; {_NO_FAILURE}", "failure_kind"),
    column("record.failure.phase", f"in which phase; {_NO_FAILURE}, or not known", "failure_phase"),
    column("record.failure.iteration", f"in which; {_NO_FAILURE}, or not known", "failure_iteration"),
    column("record.failure.evidence", f"the lines that prove it; {_NO_FAILURE}", "failure_evidence"),
    column("record.validity.reasons", "what speaks against the figures; null: as `validity`", "validity_reasons"),
    column("record.steady_state.verdict", "of the counted iterations; null: too few to tell", "steady_state"),
    column("record.steady_state.reasons", "why not steady", "steady_reasons"),
    column("record.notes"),
    TAGS,
    Column("iterations_completed", "integer", _ALL, lambda run: len(run.record.iterations.seconds), True),
    column("record.steady_state.warmup", name="iterations_warmup"),
    column("record.steady_state.iterations", name="iterations_counted"),
    Column("iterations_void", "integer", _VOID, _void_iterations),
    Column("iteration_seconds", "number", _SECONDS, _iteration_seconds),
)
_PREDICTED = ("samples_per_second", "tokens_per_second", "iteration_seconds", "memory_bytes")
_FIGURES = (
    *_rate("samples_per_second", "total work over total time of the counted iterations"),
    *_rate("tokens_per_second", "prompt and response tokens over the time of the counted iterations"),
    *_rate("tokens_per_second_per_device", "`tokens_per_second` over ranks"),
    column("record.counts.samples", "over all replicas"),
    *columns("record.counts", ("prompt_tokens", "response_tokens", "padded_tokens", "trained_tokens")),
    column("record.counts.optimizer_steps"),
    *columns("record.counts", ("trainable_parameters", "total_parameters"), _PARAMETERS),
    column("record.memory.peak_allocated_bytes", "in use by tensors, of all ranks; on a CPU resident above the start"),
    *columns("record.memory", ("peak_reserved_bytes", "peak_device_bytes", "peak_resident_bytes")),
    column("record.memory.resident_baseline_bytes"),
    column("record.memory.theoretical_minimum_bytes", "the least that the layout needs on a device, computed"),
    *columns("record.memory", ("efficiency", "efficiency_allocated"), prefix="memory_"),
    column("record.memory.allocation_retries"),
    column("record.compute.model_flops", "of one iteration, all ranks"),
    column("record.compute.hardware_flops", "as `model_flops`, recomputed work counted"),
    *columns("record.compute", ("hardware_flops_causal", "peak_flops", "mfu", "hfu", "hfu_causal", "mbu")),
    column("record.energy.joules", "of the GPU boards over the counted iterations, all ranks", "energy_joules"),
    column("record.energy.joules_per_sample", name="energy_joules_per_sample"),
    column("record.energy.valid", "whether it is of this run alone and whole", "energy_valid"),
    column("record.energy.reasons", name="energy_reasons"),
    *columns("record.lengths.prompt", LengthSummary.__struct_fields__, prefix="prompt_length_"),
    *columns("record.lengths.response", LengthSummary.__struct_fields__, prefix="response_length_"),
    column("record.padding.share", "of padding, of all positions that train", "padding_share"),
    column("record.padding.packed"),
    *columns("record.rollout", Rollout.__struct_fields__),
    column("record.staleness"),
    column("record.overlap.exposed_generate_seconds"),
    column("record.overlap.generation_busy_seconds"),
    *(column(f"record.predicted.{name}", name=f"predicted_{name}", kind="number") for name in _PREDICTED),
    *_noise(),
)
_WORKER, _DRIVER = "record.environment.worker", "record.environment.driver"
_ENVIRONMENT = (
    column(f"{_WORKER}.device.name", name="device_name"),
    column(f"{_WORKER}.device.memory_bytes", name="device_memory_bytes", kind="integer"),
    column(f"{_WORKER}.cpu.model", name="cpu_model"),
    column(f"{_WORKER}.cpu.cores", name="cpu_cores", kind="integer"),
    column(f"{_WORKER}.memory_bytes", name="host_memory_bytes", kind="integer"),
    *(column(f"{_WORKER}.{name}", name=f"{name}_version") for name in ("kernel", "driver", "cuda", "nccl", "python")),
    *(
        column(f"{_WORKER}.packages.{package}", name=f"{package.replace('-', '_')}_version")
        for package in ("torch", "deepspeed", "megatron-core", "transformers")
    ),
    column(f"{_DRIVER}.image.digest", "of the image in its registry; null: none", "image_digest"),
    column(f"{_DRIVER}.suite_version", "that drove the run"),
    column(f"{_DRIVER}.git_commit", "of the suite where it was a checkout"),
)
#: What was asked for and where it ran, as opposed to what came of it.
SETTINGS = frozenset(column.name for column in (*KEYS, *_SETTINGS, *_ENVIRONMENT))
RUN_COLUMNS: tuple[Column, ...] = (*KEYS, *_SETTINGS, *_COURSE, *_FIGURES, *_ENVIRONMENT)
