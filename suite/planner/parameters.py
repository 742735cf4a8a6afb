"""The planner's parameters: what each means, what is thought of it before any row is seen, and what was fitted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import Field

from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import data_root

FILE = "planner_parameters.json"
Fitted = TypeVar("Fitted", bound=Frozen)


class Prior(Frozen):
    """A positive parameter thought to lie within a factor exp(spread) of ``centre``, two times in three."""

    centre: float
    spread: float
    meaning: str


def _prior(centre: float, spread: float, meaning: str) -> Prior:
    return Prior(centre=centre, spread=spread, meaning=meaning)


PRIORS: Mapping[str, Prior] = {
    "matrix_volta": _prior(0.75, 0.15, "share of the 16-bit matrix peak that large products reach: V100"),
    "matrix_ampere": _prior(0.85, 0.06, "the same: A100 and its kin"),
    "matrix_hopper": _prior(0.70, 0.15, "the same: H100, H200; power limits it"),
    "matrix_blackwell": _prior(0.70, 0.15, "the same: B200, GB200 and kin"),
    "matrix_other": _prior(0.65, 0.25, "the same: a device of another make"),
    "fp8": _prior(0.85, 0.2, "what of the doubled fp8 peak is reached, relative to 16 bit"),
    "fp4": _prior(0.6, 0.3, "what of the fp4 peak is reached, relative to fp8"),
    "inner_width": _prior(150.0, 0.5, "a product that sums over k elements takes 1 + this / k as long"),
    "attention": _prior(0.35, 0.4, "share of the 16-bit peak that attention kernels reach"),
    "attention_engine": _prior(1.4, 0.3, "factor on it where NVIDIA's Transformer Engine is used"),
    "attention_ampere": _prior(1.2, 0.2, "factor on it on A100"),
    "attention_narrow": _prior(1.0, 0.3, "factor on it for head dimensions below 100"),
    "unfused_scores": _prior(1.0, 0.5, "factor on the bytes that unfused attention moves"),
    "memory_bandwidth": _prior(0.75, 0.1, "share of the memory bandwidth's peak that is reached"),
    "matrix_traffic": _prior(1.2, 0.25, "factor on the bytes of matrix products' operands, casts included"),
    "weight_traffic": _prior(0.7, 0.5, "factor on the bytes of weights; the largest products hide them"),
    "cast_traffic": _prior(0.5, 0.5, "added to it for casts to fp8 and fp4"),
    "residual_traffic": _prior(1.2, 0.2, "factor on the bytes of norms and residuals"),
    "residual_plain": _prior(0.6, 0.4, "added to it for the GPT family: biases, dropout, LayerNorm"),
    "activation_traffic": _prior(1.2, 0.2, "factor on the bytes of the activation function"),
    "loss_traffic": _prior(1.0, 0.5, "factor on the bytes of the loss"),
    "unfused_traffic": _prior(1.5, 0.7, "factor on elementwise bytes of stacks without fused attention (2019-2022)"),
    "eager": _prior(1.1, 0.2, "third root of the factor on elementwise bytes where PyTorch runs uncompiled"),
    "row_scaling": _prior(0.5, 0.5, "twice this is added to the factor on matrix bytes for row-wise fp8 scales"),
    "tensor_exposed": _prior(0.5, 0.5, "share of tensor parallel communication that is not hidden"),
    "tensor_asynchronous": _prior(0.5, 0.5, "factor on it where it is cut up to overlap"),
    "context_exposed": _prior(0.2, 0.7, "share of context parallel communication that is not hidden"),
    "data_exposed": _prior(0.2, 0.7, "share of gradient and parameter communication that is never hidden"),
    "data_last": _prior(1.0, 0.3, "weight of what does not fit behind the last micro batch"),
    "gather_exposed": _prior(0.1, 0.7, "share of ZeRO-3 gathers that is never hidden"),
    "gather_bandwidth": _prior(0.6, 0.4, "share of the bandwidth that ZeRO-3 gathers reach"),
    "gather_zero_engine": _prior(
        0.4, 0.8, "factor on it for DeepSpeed's ZeRO-3 as the Megatron paper timed it in 2021"
    ),
    "stage_exposed": _prior(0.5, 0.7, "share of pipeline sends that is not hidden"),
    "head_imbalance": _prior(0.8, 0.3, "share of the output head's time by which the last stage holds up a pipeline"),
    "bubble": _prior(1.0, 0.1, "factor on the pipeline bubble"),
    "layer_seconds": _prior(3e-5, 0.7, "launch overhead of a layer and micro batch, seconds"),
    "step_seconds": _prior(0.002, 0.7, "overhead of a step, seconds"),
    "stragglers": _prior(0.005, 0.7, "relative slow-down for each doubling of the devices beyond eight"),
    "power": _prior(0.5, 0.5, "exponent of the power limit's share in the matrix rate"),
}
NAMES = tuple(PRIORS)

#: Levels at which stacks differ beyond physics, each an effect on log time with this prior standard deviation.
LEVELS: Mapping[str, float] = {
    "family": 0.16,
    "framework": 0.20,
    "framework|device": 0.16,
    "framework|device|precision": 0.10,
    "framework|device|precision|release": 0.06,
}


class Band(Frozen):
    """Relative errors seen in cross-validation: half of the predictions were nearer than ``median``."""

    median: float
    p90: float
    rows: int


class RateBand(Frozen):
    """Whole PPO iterations: how much longer eager Hugging Face models compute, and how far published rates were off.

    ``low``, ``median`` and ``high`` are published over predicted samples per second, each with the factor ``slower``
    fitted on other models alone; ``inside`` of ``rows`` lie in the range of the other models' rows.
    """

    slower: float
    low: float
    median: float
    high: float
    rows: int
    inside: int


class Provenance(Frozen):
    """Where the numbers come from."""

    fitted: str = Field(description="date")
    rows: int
    sources: dict[str, int] = Field(description="published rows used, by source")
    digest: str = Field(description="SHA-256 of the rows that were read")


class Learnt(Frozen):
    """How sure one is of constants: the covariance of their logarithms, and the ``noise`` beside them of a prediction.

    ``names`` are "value NAME" of a parameter and "phase NAME" of a factor on a phase.
    """

    names: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float
    configurations: int = Field(default=0, description="of own runs that taught them; 0: none")
    runs: int = 0


class Parameters(Frozen):
    """Fitted values, effects of stacks (log of a factor on time) and the error bands of the check."""

    schema_: str = Field(default="suite/planner/1", alias="schema")
    provenance: Provenance
    values: dict[str, float]
    effects: dict[str, dict[str, float]] = Field(description="level -> group -> log factor")
    memory: dict[str, float] = Field(description="parameters of the memory model")
    bands: dict[str, Band]
    phases: dict[str, float] = Field(default={}, description="factors on phases learnt from the user's own runs")
    ppo: RateBand | None = None
    memory_factor: float = Field(default=1.0, description="factor on peak memory learnt from the user's own runs")
    learnt: Learnt | None = Field(default=None, description="how sure the user's own runs make one; null: none taught")

    def vector(self) -> np.ndarray:
        """Logarithms of the values in the order of ``NAMES``."""
        return np.log([self.values[name] for name in NAMES])

    def effect(self, groups: Mapping[str, str]) -> float:
        """Sum of the effects of a job's groups; a group never seen has none."""
        return sum(self.effects.get(level, {}).get(group, 0.0) for level, group in groups.items())


@lru_cache(maxsize=1)
def load_parameters() -> Parameters:
    """The fitted parameters that come with the suite. UsageError where the file is missing or damaged."""
    path = data_root() / FILE
    try:
        return Parameters.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the planner's parameters in {path} cannot be read: {error}; `make planner-fit`") from error


def write_parameters(parameters: Frozen, path: Path) -> None:
    """Sorted and rounded to six digits, so that the same rows give the same bytes."""
    body = _rounded(parameters.model_dump(mode="json", by_alias=True))
    path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def rounded(parameters: Fitted) -> Fitted:
    """The parameters as they are read again from their file."""
    return type(parameters).model_validate(_rounded(parameters.model_dump(mode="json", by_alias=True)))


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
