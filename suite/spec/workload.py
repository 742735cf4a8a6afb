"""The work of one iteration of reinforcement learning, and the counts that follow from it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from suite.spec.algorithms import PPO_NAME, Algorithm, declarations
from suite.spec.base import Frozen
from suite.spec.fields import Declared, Declaring, Later
from suite.spec.lengths import FORMS, Lengths
from suite.spec.typed import MOST_SAMPLES

Scaling = Literal["weak", "strong"]
_Samples = Annotated[int, Field(gt=0, le=MOST_SAMPLES)]


class ConstantReward(Frozen):
    """The same score for every sample: isolates the infrastructure from training dynamics."""

    kind: Literal["constant"] = "constant"
    value: float = 0.5


class TokenBelowReward(Frozen):
    """Share of response tokens whose id is below ``threshold``: a toy with something to learn."""

    kind: Literal["token-below"] = "token-below"
    threshold: int = Field(gt=0)


class PseudoReward(Frozen):
    """A score in 0 to 1 drawn from the seed, the iteration and the sample's number: it varies within a group of
    samples of one prompt, so that group algorithms have advantages, and is the same on every backend."""

    kind: Literal["pseudo"] = "pseudo"


Reward = ConstantReward | TokenBelowReward | PseudoReward


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
    """A value model of its own beside the policy, of its vocabulary and positions: a GPT-2 style trunk and one linear
    layer without bias to the value."""

    layers: int = Field(gt=0)
    hidden: int = Field(gt=0, description="model width")
    ffn: int = Field(gt=0, description="inner width of the MLP")
    heads: int = Field(gt=0)


PPO_ALGORITHM = Algorithm(name=PPO_NAME)
#: the field that says the longest, by the field of uneven lengths
_LONGEST = {"lengths": "new_tokens", "prompt_lengths": "prompt_tokens"}
*_FIRST, _LAST = declarations()
_ALGORITHMS = f"{', '.join(_FIRST)} or {_LAST}"


def _usual_group(algorithm: Algorithm, rollouts: Any) -> int:
    """The algorithm's, or the next smaller one that divides a device's rollouts."""
    usual = algorithm.declaration.group
    if not isinstance(rollouts, int) or rollouts < 1:
        return usual
    return max(group for group in range(1, usual + 1) if rollouts % group == 0)


class Workload(Declaring):
    """One iteration, described independently of any layout so that equal workloads are equal work. ``rollouts`` are
    samples on one device: weak scaling keeps them per device (N devices do N times as many), strong scaling in all."""

    name: str = Field(min_length=1, max_length=64)
    prompt_tokens: Annotated[
        PositiveInt, Declared("--prompt-tokens", "tokens of each prompt; of the longest, where uneven")
    ]
    new_tokens: Annotated[
        PositiveInt, Declared("--new-tokens", "tokens of each response, forced; of the longest, where uneven")
    ]
    algorithm: Annotated[
        Algorithm, Later("--algorithm", f"{_ALGORITHMS}, with options: grpo:clip_high=0.28", feature="algorithm {}")
    ] = PPO_ALGORITHM
    group: Annotated[
        _Samples,
        Later(
            "--group", "samples of a prompt [default: the algorithm's, if it divides]", feature="groups of {} samples"
        ),
    ] = 1
    prompt_lengths: Annotated[
        Lengths | None, Later("--prompt-lengths", "uneven prompts, as --lengths", feature="prompts of uneven length")
    ] = None
    lengths: Annotated[
        Lengths | None, Later("--lengths", f"uneven responses: {FORMS}", feature="responses of uneven length")
    ] = None
    rollouts: Annotated[_Samples, Declared("--rollouts", "samples of an iteration on one device")]
    scaling: Scaling = "weak"
    optimizer_steps: int = Field(default=1, gt=0, description="optimizer steps per PPO epoch")
    ppo_epochs: PositiveInt = 1
    micro_batch: Annotated[
        _Samples, Declared("--micro-batch", "most samples in one scoring or training pass; all are generated at once")
    ]
    trainable_layers: Annotated[
        NonNegativeInt | None, Declared("--trainable-layers", "train only the last N layers; null: all")
    ] = None
    lora_rank: Annotated[
        PositiveInt | None,
        Later(help="weight matrices are frozen, each beside an adapter of this rank", feature="LoRA adapters"),
    ] = None
    critic: Annotated[Critic | None, Later(help="null: a value head on the policy", feature="separate critic")] = None
    reference: Annotated[
        Literal["full", "hydra"], Declared("--reference", "reference policy: a full copy, or hydra on the frozen trunk")
    ] = "full"
    reward: Reward = Field(default=ConstantReward(), discriminator="kind")
    ppo: PPO = PPO()
    optimizer: Optimizer = Optimizer()
    note: str | None = None
    source: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        """Fill in what follows from other fields: the longest lengths, an algorithm's usual group and reward."""
        if not isinstance(value, Mapping):
            return value
        body = dict(value)
        for uneven, longest in _LONGEST.items():
            if body.get(uneven) is not None:
                lengths = Lengths.model_validate(body[uneven])
                if body.setdefault(longest, lengths.longest) != lengths.longest:
                    raise ValueError(f"{longest} {body[longest]} is not the longest of {uneven}, {lengths.text()}")
                body[uneven] = None if lengths.kind == "fixed" else lengths
        if body.get("algorithm") is not None:
            body["algorithm"] = Algorithm.model_validate(body["algorithm"])
            body.setdefault("group", _usual_group(body["algorithm"], body.get("rollouts")))
            if body["algorithm"].name != PPO_NAME:
                body.setdefault("reward", PseudoReward())
        return body

    @model_validator(mode="after")
    def _fits_together(self) -> "Workload":
        declared = self.algorithm.declaration
        if self.prompt_lengths is not None and self.prompt_lengths.group_correlation:
            raise ValueError("the samples of a group share their prompt: --prompt-lengths has no group-correlation")
        if self.lengths is not None and self.lengths.group_correlation and self.group == 1:
            raise ValueError("group-correlation is of the samples of a prompt: --group is at least 2 for it")
        if self.group < declared.least_group:
            least = declared.least_group
            raise ValueError(f"{declared.name} compares the samples of a prompt: --group is at least {least}")
        if self.critic is not None and not declared.values:
            raise ValueError(f"{declared.name} learns no values, so critic must be left out")
        if self.critic is not None and self.critic.hidden % self.critic.heads:
            raise ValueError(f"the critic's hidden {self.critic.hidden} is not divisible by {self.critic.heads} heads")
        if self.reference == "hydra" and self.trainable_layers is None:
            raise ValueError("a hydra reference shares the frozen trunk, so trainable_layers must be given")
        if self.lora_rank is not None and self.trainable_layers is not None:
            raise ValueError("LoRA trains adapters on every block, so trainable_layers must be left out")
        return self

    def changed(self, changes: Mapping[str, Any]) -> "Workload":
        """The same with other values of some fields; another algorithm brings its own usual group and reward, even
        lengths take the place of uneven ones. Raises ValidationError where they do not fit."""
        own = {"group", "reward"} if "algorithm" in changes else set()
        for pair in _LONGEST.items():
            own |= set() if changes.keys().isdisjoint(pair) else set(pair)
        return Workload.model_validate({**self.model_dump(exclude=own), **changes})

    @property
    def uneven(self) -> bool:
        """Whether samples may differ in length."""
        return self.lengths is not None or self.prompt_lengths is not None

    @property
    def uses_values(self) -> bool:
        """Whether a value head or a critic is trained."""
        return self.algorithm.declaration.values

    @property
    def uses_reference(self) -> bool:
        """Whether there is a reference policy and its phase."""
        return self.algorithm.uses_reference

    @property
    def sequence_tokens(self) -> int:
        return self.prompt_tokens + self.new_tokens

    def global_rollouts(self, devices: int) -> int:
        return self.rollouts * devices if self.scaling == "weak" else self.rollouts
