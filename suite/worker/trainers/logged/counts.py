"""What a trainer's log tells of the work of a step, held to what the manifest asks for."""

import math
from typing import Any, Dict, Mapping, Optional

from suite.worker.loop import expected_counts
from suite.worker.rank import ConfigError
from suite.worker.trainers.logged.reading import LoggedStep

COUNTS = (
    "samples",
    "prompt_tokens",
    "response_tokens",
    "padded_tokens",
    "trained_tokens",
    "optimizer_steps",
    "trainable_parameters",
    "total_parameters",
)
#: Without these there is no rate.
_NEEDED = COUNTS[:3]
#: Means of many samples are logged as floats, in some trainers of 32 bits.
_ROUNDING = 1e-5
Told = Dict[str, Optional[int]]


def value(step: LoggedStep, name: str) -> Optional[float]:
    """What the step tells under ``name``; None where it tells nothing or no finite number."""
    return step.values.get(name)


def whole_number(number: Optional[float]) -> Optional[int]:
    """A count out of a product of means; None of nothing. Raises ConfigError for what is no whole number."""
    if number is None or not math.isfinite(number):
        return None
    nearest = round(number)
    if abs(number - nearest) > _ROUNDING * max(1.0, abs(number)):
        raise ConfigError("{!r} is not a whole number of tokens or samples".format(number))
    return nearest


def product(*factors: Optional[float]) -> Optional[int]:
    """The whole number that the factors give; None where one is not told."""
    told = [factor for factor in factors if factor is not None]
    return whole_number(math.prod(told)) if len(told) == len(factors) else None


def check_told(told: Told, manifest: Dict[str, Any], step: LoggedStep, trainer: str) -> Told:
    """Every count by name, null what is not told; each that is told is the manifest's.

    Raises ConfigError, with every number, where it is not, and where samples or tokens are not told at all.
    """
    counts: Told = {name: told.get(name) for name in COUNTS}
    missing = [name for name in _NEEDED if counts[name] is None]
    if missing:
        raise ConfigError("step {} of {} tells no {}".format(step.number, trainer, ", ".join(missing)))
    asked: Mapping[str, int] = expected_counts(manifest["workload"], manifest["work"])
    wrong = [
        "{} {} wanted, {} logged".format(name, asked[name], counts[name])
        for name in COUNTS
        if name != "padded_tokens" and name in asked and counts[name] not in (None, asked[name])
    ]
    if wrong:
        raise ConfigError(
            "step {} of {} was not the manifest's work: {}".format(step.number, trainer, "; ".join(wrong))
        )
    return counts
