"""What a search may turn: settings of a layout, the micro batch and the threads of a rank. Work is never a knob."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from suite.backends.base import BackendDriver
from suite.backends.registry import seat_of
from suite.spec.base import UsageError
from suite.spec.fields import chosen, is_default
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.manifest import Manifest
from suite.spec.names import nearest

#: A value of a setting as JSON has it, and a setting of every knob of a backend.
Value = bool | int | str
Choice = Mapping[str, Value]
#: Knobs that are no part of a layout.
MICRO_BATCH, THREADS = "micro_batch", "threads"


@dataclass(frozen=True)
class Knob:
    """``values``: what is tried where nobody says, given the row that the stack makes by itself and the cores for each
    rank. ``changes``: what it may change of the figures that are trained with; null: nothing but their rounding.
    """

    values: Callable[[Manifest, int], Sequence[Value]]
    changes: str | None = None


def _divisors(manifest: Manifest, cores: int) -> Sequence[Value]:
    ranks = manifest.layout.ranks
    return [degree for degree in range(1, ranks + 1) if ranks % degree == 0]


def _powers(most: int) -> list[Value]:
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def _always(*values: Value) -> Callable[[Manifest, int], Sequence[Value]]:
    return lambda manifest, cores: values


def _where(holds: Callable[[Manifest], bool], *values: Value) -> Callable[[Manifest, int], Sequence[Value]]:
    return lambda manifest, cores: values if holds(manifest) else ()


def _has_ranks(manifest: Manifest) -> bool:
    return manifest.layout.ranks > 1


def _is_uneven(manifest: Manifest) -> bool:
    return manifest.workload.uneven


def _on_gpu(manifest: Manifest) -> bool:
    return manifest.measure.device == "cuda"


#: Every knob, in the order in which reports name them. Those without values of their own are turned where values are
#: named: another generation engine samples other tokens, so that no loss tells whether it did the same work.
KNOBS: Mapping[str, Knob] = {
    "tensor": Knob(_divisors),
    "pipeline": Knob(_divisors),
    "expert": Knob(lambda manifest, cores: _divisors(manifest, cores) if manifest.size.experts else ()),
    "sequence_parallel": Knob(_where(_has_ranks, False, True)),
    "zero_stage": Knob(_always(0, 1, 2, 3)),
    "engine": Knob(_always("deepspeed", "ddp", "fsdp2")),
    "distributed_optimizer": Knob(_always(False, True)),
    "gather_for_generation": Knob(_always(False, True)),
    "recompute": Knob(_always("none", "full")),
    MICRO_BATCH: Knob(
        lambda manifest, cores: _powers(manifest.work.global_rollouts),
        "gradients are sums over other micro batches: equal within rounding",
    ),
    "packing": Knob(_where(_is_uneven, False, True)),
    "balance": Knob(
        lambda manifest, cores: (False, True) if _is_uneven(manifest) and _has_ranks(manifest) else (),
        "which rank trains on which sample",
    ),
    "offload_optimizer": Knob(_where(_on_gpu, False, True)),
    "offload_parameters": Knob(_where(_on_gpu, False, True)),
    "kernels": Knob(_where(_on_gpu, "torch", "native")),
    "generation": Knob(_always(), "which tokens are sampled: losses are not compared"),
    "engine_sleep": Knob(_always()),
    "sampler": Knob(_always()),
    THREADS: Knob(lambda manifest, cores: () if _on_gpu(manifest) else _powers(max(1, cores))),
}


def lacking(name: str, driver: BackendDriver) -> bool:
    """Whether a knob means nothing to a backend."""
    return name not in (MICRO_BATCH, THREADS) and name not in driver.settings


def named_knobs(names: Iterable[str], backends: Sequence[str]) -> tuple[str, ...]:
    """Knobs as a user typed them, in the order of ``KNOBS``; all where none is named. Raises UsageError."""
    typed = [name.replace("-", "_") for name in names]
    for name in typed:
        if name not in KNOBS:
            raise UsageError(f"there is no knob {name!r}{nearest(name, KNOBS)}; there are {', '.join(KNOBS)}")
        if all(lacking(name, seat_of(backend)[0]) for backend in backends):
            raise UsageError(f"--knob {name} means nothing to {' or '.join(backends)}; leave it out")
    return tuple(name for name in KNOBS if not typed or name in typed)


def values_of(
    default: Manifest, cores: int, knobs: Sequence[str], asked: LayoutChoices, fixed: Iterable[str]
) -> dict[str, tuple[Value, ...]]:
    """The values of each knob of a backend that has several, that of the stack's own row first.

    ``asked``: values of layouts that a user named, which are all that is tried then; ``fixed``: knobs that were given
    one value in another way.
    """
    driver = seat_of(default.backend.label)[0]
    own = choice_of(default, KNOBS)
    found = {}
    for name in knobs:
        if lacking(name, driver) or name in fixed:
            continue
        named = _asked_values(asked, name)
        tried = named or KNOBS[name].values(default, cores)
        values = tuple(dict.fromkeys((own[name], *tried) if not named or own[name] in named else named))
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
    words = [
        name if value is True else f"no {name}" if value is False else f"{name} {value}"
        for name, value in choice.items()
    ]
    return ", ".join(words)
