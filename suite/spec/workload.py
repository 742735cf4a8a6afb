"""The work of one PPO iteration, and the counts that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from suite.spec.base import Frozen
from suite.spec.fields import Declared, Declaring

Scaling = Literal["weak", "strong"]
ReferencePolicy = Literal["full", "hydra"]


class ConstantReward(Frozen):
    """The same score for every sample: isolates the infrastructure from training dynamics."""

    kind: Literal["constant"] = "constant"
    value: float = 0.5


class TokenBelowReward(Frozen):
    """Share of response tokens whose id is below ``threshold``: a toy with something to learn."""

    kind: Literal["token-below"] = "token-below"
    threshold: int = Field(gt=0)


Reward = ConstantReward | TokenBelowReward


class PPO(Frozen):
    """Coefficients of the algorithm (Schulman et al., arXiv 1707.06347; defaults as trlx's benchmark script)."""

    discount: float = Field(default=1.0, gt=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip_ratio: float = Field(default=0.2, gt=0)
    clip_value: float = Field(default=0.2, gt=0)
    value_coefficient: float = Field(default=1.0, ge=0)
    kl_coefficient: float = Field(default=0.05, ge=0)
    temperature: float = Field(default=1.0, gt=0)


class Optimizer(Frozen):
    """AdamW; the learning rate is constant."""

    learning_rate: float = Field(default=6.001e-5, gt=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=1e-6, ge=0)
    gradient_clip: float = Field(default=1.0, gt=0, description="maximum global gradient norm")


class Critic(Frozen):
    """A value model of its own beside the policy: a GPT-2 style trunk and one linear layer without bias to the value.

    Vocabulary and positions are the policy's.
    """

    layers: int = Field(gt=0)
    hidden: int = Field(gt=0, description="model width")
    ffn: int = Field(gt=0, description="inner width of the MLP")
    heads: int = Field(gt=0)

    @model_validator(mode="after")
    def _divides(self) -> "Critic":
        if self.hidden % self.heads:
            raise ValueError(f"the critic's hidden {self.hidden} is not divisible by {self.heads} heads")
        return self


class Workload(Declaring):
    """One PPO iteration, described independently of any layout so that equal workloads are equal work.

    ``rollouts`` are samples per device at one device. Weak scaling keeps them per device (N devices do
    N times as many); strong scaling keeps them in all.
    """

    name: str = Field(min_length=1, max_length=64)
    prompt_tokens: Annotated[int, Declared("--prompt-tokens", "tokens of each prompt")] = Field(gt=0)
    new_tokens: Annotated[int, Declared("--new-tokens", "tokens of each response, forced")] = Field(
        gt=0, description="forced response length"
    )
    rollouts: Annotated[int, Declared("--rollouts", "samples of an iteration on one device")] = Field(
        gt=0, description="samples of one iteration on one device"
    )
    scaling: Scaling = "weak"
    optimizer_steps: int = Field(default=1, gt=0, description="optimizer steps per PPO epoch")
    ppo_epochs: int = Field(default=1, gt=0)
    micro_batch: Annotated[int, Declared("--micro-batch", "most samples in one scoring or training pass")] = Field(
        gt=0,
        description="most sequences in one scoring or training pass of a replica; it generates all of its own at once",
    )
    trainable_layers: Annotated[int | None, Declared("--trainable-layers", "train only the last N layers")] = Field(
        default=None, ge=0, description="last layers that train; null: all"
    )
    lora_rank: Annotated[int | None, Declared(written="when set", feature="LoRA adapters")] = Field(
        default=None, gt=0, description="the blocks' weight matrices are frozen, each beside an adapter of this rank"
    )
    critic: Annotated[Critic | None, Declared(written="when set", feature="separate critic")] = Field(
        default=None, description="null: a value head on the policy"
    )
    reference: Annotated[
        ReferencePolicy, Declared("--reference", "reference policy: a full copy, or hydra on the frozen trunk")
    ] = "full"
    reward: Reward = Field(default=ConstantReward(), discriminator="kind")
    ppo: PPO = PPO()
    optimizer: Optimizer = Optimizer()
    note: str | None = None
    source: str | None = None

    @model_validator(mode="after")
    def _hydra_needs_frozen_layers(self) -> "Workload":
        if self.reference == "hydra" and self.trainable_layers is None:
            raise ValueError("a hydra reference shares the frozen trunk, so trainable_layers must be given")
        return self

    @model_validator(mode="after")
    def _adapters_are_on_every_block(self) -> "Workload":
        if self.lora_rank is not None and self.trainable_layers is not None:
            raise ValueError("LoRA trains adapters on every block, so trainable_layers must be left out")
        return self

    def changed(self, changes: Mapping[str, Any]) -> "Workload":
        """The same with other values of some fields. Raises ValidationError where they do not fit."""
        return Workload.model_validate({**self.model_dump(), **changes})

    @property
    def sequence_tokens(self) -> int:
        return self.prompt_tokens + self.new_tokens

    def global_rollouts(self, devices: int) -> int:
        return self.rollouts * devices if self.scaling == "weak" else self.rollouts
