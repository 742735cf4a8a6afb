"""What a search may turn: settings of a layout, the micro batch and the threads of a rank. Work is never a knob."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from suite.backends.base import BackendDriver
from suite.backends.registry import seat_of
from suite.spec.base import UsageError
from suite.spec.fields import chosen, is_default
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.manifest import Manifest
from suite.spec.names import nearest
from suite.theory.parameters import parameter_count

#: A value of a knob as JSON has it, and how all knobs of a backend stand.
Value = bool | int | str
Choice = Mapping[str, Value]
#: Knobs that are no part of a layout.
MICRO_BATCH, THREADS = "micro_batch", "threads"
#: Knobs that are turned only where they or values of them are named: they would make a space of all knobs too large,
#: and ranks that just generate have samples of weights that are an update older.
ON_REQUEST = ("placement", "generation_ranks", "bucket_elements")

#: What is tried of a knob where nobody says, given the row that the stack makes by itself and the cores for each rank.
Values = Callable[[Manifest, int], Sequence[Value]]


def _divisors(manifest: Manifest, cores: int) -> Sequence[Value]:
    ranks = manifest.layout.ranks
    return [degree for degree in range(1, ranks + 1) if ranks % degree == 0]


def _buckets(manifest: Manifest, cores: int) -> Sequence[Value]:
    """The stack's own, and parts of DeepSpeed's, which is no larger than the whole model."""
    from suite.planner.memory import DEEPSPEED_BUCKET

    whole = min(DEEPSPEED_BUCKET, parameter_count(manifest.size).total)
    return [0, whole // 4, whole // 16]


def _powers(most: int) -> list[Value]:
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def _always(*values: Value) -> Values:
    return lambda manifest, cores: values


def _where(holds: Callable[[Manifest], bool], *values: Value) -> Values:
    return lambda manifest, cores: values if holds(manifest) else ()


def _has_ranks(manifest: Manifest) -> bool:
    return manifest.layout.ranks > 1


def _is_uneven(manifest: Manifest) -> bool:
    return manifest.workload.uneven


def _on_gpu(manifest: Manifest) -> bool:
    return manifest.measure.device == "cuda"


#: Every knob, in the order in which reports name them. Nothing but the rounding of gradients depends on how they stand,
#: but for those without values of their own, which are turned where somebody names values: another generation engine
#: samples other tokens, so that losses do not tell whether it did the same work.
KNOBS: Mapping[str, Values] = {
    "tensor": _divisors,
    "pipeline": _divisors,
    "expert": lambda manifest, cores: _divisors(manifest, cores) if manifest.size.experts else (),
    "sequence_parallel": _where(_has_ranks, False, True),
    "zero_stage": _always(0, 1, 2, 3),
    "engine": _always("deepspeed", "ddp", "fsdp2"),
    "distributed_optimizer": _always(False, True),
    "gather_for_generation": _always(False, True),
    "recompute": _always("none", "full"),
    MICRO_BATCH: lambda manifest, cores: _powers(manifest.work.global_rollouts),
    "packing": _where(_is_uneven, False, True),
    "balance": _where(lambda manifest: _is_uneven(manifest) and _has_ranks(manifest), False, True),
    "offload_optimizer": _where(_on_gpu, False, True),
    "offload_parameters": _where(_on_gpu, False, True),
    "kernels": _where(_on_gpu, "torch", "native"),
    "generation": _always(),
    "engine_sleep": _always(),
    "engine_memory": _where(lambda manifest: _on_gpu(manifest) and manifest.layout.generation == "vllm", 0, 40, 70),
    "placement": _where(_has_ranks, "colocated", "split"),
    "generation_ranks": lambda manifest, cores: [0, *_divisors(manifest, cores)[:-1]],
    "bucket_elements": _buckets,
    "sampler": _always(),
    THREADS: lambda manifest, cores: () if _on_gpu(manifest) else _powers(max(1, cores)),
}


def lacking(name: str, driver: BackendDriver) -> bool:
    """Whether a knob means nothing to a backend."""
    return name not in (MICRO_BATCH, THREADS) and name not in driver.settings


def named_knobs(names: Iterable[str], backends: Sequence[str], asked: LayoutChoices) -> tuple[str, ...]:
    """Knobs as a user typed them, in the order of ``KNOBS``; all where none is named, but for those on request of which
    no values are ``asked``. Raises UsageError."""
    typed = [name.replace("-", "_") for name in names]
    for name in typed:
        if name not in KNOBS:
            raise UsageError(f"there is no knob {name!r}{nearest(name, KNOBS)}; there are {', '.join(KNOBS)}")
        if all(lacking(name, seat_of(backend)[0]) for backend in backends):
            raise UsageError(f"--knob {name} means nothing to {' or '.join(backends)}; leave it out")
    usual = [name for name in KNOBS if name not in ON_REQUEST or _asked_values(asked, name)]
    return tuple(name for name in KNOBS if name in (typed or usual))


def values_of(
    default: Manifest, cores: int, knobs: Sequence[str], asked: LayoutChoices, fixed: Iterable[str]
) -> dict[str, tuple[Value, ...]]:
    """The values of each knob of a backend that has several, that of the stack's own row first. ``asked``: values that
    a user named, which alone are tried beside it; ``fixed``: knobs that were given one value in another way."""
    driver = seat_of(default.backend.label)[0]
    own = choice_of(default, KNOBS)
    found = {}
    for name in knobs:
        if lacking(name, driver) or name in fixed:
            continue
        tried = _asked_values(asked, name) or KNOBS[name](default, cores)
        values = tuple(dict.fromkeys((own[name], *tried)))
        if len(values) > 1:
            found[name] = values
    return found


def _asked_values(asked: LayoutChoices, name: str) -> tuple[Value, ...]:
    if name not in type(asked).model_fields or is_default(asked, name):
        return ()
    value = getattr(asked, name)
    return tuple(value) if name in chosen(Layout, "compare") else (value,)


def choice_of(manifest: Manifest, knobs: Iterable[str]) -> dict[str, Value]:
    """How the knobs stand in a row."""
    beside = {MICRO_BATCH: manifest.work.micro_batch, THREADS: manifest.measure.threads_per_rank}
    return {name: beside[name] if name in beside else getattr(manifest.layout, name) for name in knobs}


def changed(choice: Choice, default: Choice) -> dict[str, Value]:
    """The knobs that stand otherwise than in the default."""
    return {name: value for name, value in choice.items() if default.get(name) != value}


def told(choice: Choice) -> str:
    """For a reader: ``micro_batch 4, packing``; empty for nothing."""
    return ", ".join(
        name if value is True else f"no {name}" if value is False else f"{name} {value}"
        for name, value in choice.items()
    )
