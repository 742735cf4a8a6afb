"""What is fitted on published RL iterations: engines, weight synchronisation, host work, and the bands of predictions.

The training physics (``suite.planner.parameters``) is fitted on step times of pre-training and stands under this; the
parameters here are of what an RL iteration adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field

from suite.planner.parameters import Prior, Provenance
from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import data_root

FILE = "planner_rl_parameters.json"


def _prior(centre: float, spread: float, meaning: str) -> Prior:
    return Prior(centre=centre, spread=spread, meaning=meaning)


RL_PRIORS: Mapping[str, Prior] = {
    "decode_bandwidth": _prior(0.7, 0.2, "share of memory bandwidth that decoding reaches"),
    "decode_products": _prior(0.5, 0.3, "share of the training efficiency that a decoding step's products reach"),
    "engine_step": _prior(3e-3, 0.5, "host work of an engine's step: scheduling, sampling, seconds"),
    "engine_sequence": _prior(1e-5, 0.7, "host work of each sequence in a step, seconds"),
    "engine_layer": _prior(5e-5, 0.4, "latency of a layer's kernels in a step, captured as a graph, seconds"),
    "engine_eager": _prior(1.1e-3, 0.3, "the same where nothing is captured"),
    "engine_experts": _prior(4.0, 0.3, "factor on a layer's latency where it has experts"),
    "reduce_latency": _prior(2e-5, 0.5, "latency of an engine's all-reduce inside a node, seconds"),
    "reduce_network": _prior(1.2e-4, 0.3, "the same across hosts"),
    "engine_latent": _prior(2.0, 0.4, "factor on a layer's latency where keys and values are one latent"),
    "adapters": _prior(2.5, 0.4, "factor on elementwise bytes where low-rank adapters run beside the matrices"),
    "expert_products": _prior(2.2, 0.3, "factor on matrix products of a mixture of experts: grouped and uneven"),
    "layer_host": _prior(1.5e-3, 0.5, "host work of a layer and micro batch in a forward pass, seconds"),
    "expert_host": _prior(2.0, 0.5, "factor on it where the layer has experts"),
    "flash_three": _prior(1.5, 0.2, "factor on the rate of attention where FlashAttention 3 runs (arXiv 2407.08608)"),
    "attention_longer": _prior(0.2, 0.4, "exponent by which attention's rate grows beyond 8,192 tokens"),
    "portions": _prior(8.0, 0.6, "times that a loss in portions reads and writes its logits beside the usual five"),
    "scoring_slow": _prior(1.2, 0.3, "factor on forward passes that take log-probabilities"),
    "sample_host": _prior(2e-3, 0.8, "host work of each sample of an iteration outside the engines, seconds"),
    "iteration_fixed": _prior(3.0, 0.7, "an iteration's fixed host work: data, rewards, advantages, logging, seconds"),
    "wake_fixed": _prior(1.5, 0.6, "fixed costs of a colocated weight synchronisation, sleep and wake in, seconds"),
    "wake_rate": _prior(4e9, 0.6, "bytes per second at which colocated weights are gathered and handed over"),
    "send_fixed": _prior(0.03, 0.7, "fixed costs of a weight synchronisation between devices, seconds"),
    "send_rate": _prior(1e11, 0.5, "bytes per second of whole weights between devices, beside what links take"),
    "send_tensor": _prior(6e-4, 0.7, "seconds of each tensor where they are sent one by one, each expert's too"),
    "convert_rate": _prior(1.5e9, 0.6, "bytes per second and device at which weights are quantised to fp8"),
    "logits": _prior(1.2, 0.3, "factor on the logits of a loss that keeps them whole"),
    "again_experts": _prior(1.3, 0.3, "the same, besides, where the block has experts"),
    "again": _prior(2.0, 0.4, "factor on the activations of the block that is recomputed: gradients beside them"),
}
RL_NAMES = tuple(RL_PRIORS)
#: Standard deviations of a stack's own effect on log time, by phase; never a row's, never a source's.
STACK_SPREAD: Mapping[str, float] = {"training": 0.25, "scoring": 0.25, "generation": 0.2, "sync": 0.5}


class RLBand(Frozen):
    """An 80 % band: four of five measured values that the fit has not seen lie between ``low`` and ``high`` times their
    prediction. ``rows`` of which it was made, and in how many ``groups`` they err together; ``held`` the share of rows
    that lay inside a band made without them."""

    low: float
    high: float
    rows: int
    groups: int
    held: float | None = None


class RLParameters(Frozen):
    """Fitted values, effects of stacks by phase (log of a factor on time), and 80 % bands by kind of prediction."""

    schema_: str = Field(default="suite/planner-rl/1", alias="schema")
    provenance: Provenance
    values: dict[str, float]
    effects: dict[str, dict[str, float]] = Field(description="phase -> stack -> log factor")
    bands: dict[str, RLBand] = Field(description="from configurations kept back at random")
    step_band: RLBand | None = Field(default=None, description="of pre-training and fine-tuning steps")
    new_model_bands: dict[str, RLBand] = Field(default={}, description="from models left out whole")


@lru_cache(maxsize=1)
def load_rl_parameters() -> RLParameters:
    """The fitted parameters that come with the suite. UsageError where the file is missing or damaged."""
    path = data_root() / FILE
    try:
        return RLParameters.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the planner's parameters in {path} cannot be read: {error}; `make planner-fit`") from error
