"""What each backend can lay out, and how it runs: the planner's view of the stacks that the suite measures."""

from dataclasses import dataclass

from suite.spec.base import UsageError
from suite.spec.names import nearest


@dataclass(frozen=True)
class Traits:
    """Ways of running that a new stack can share with a known one."""

    family: str
    framework: str
    fused_attention: bool = True
    engine: bool = False
    eager: bool = True
    asynchronous_tensor: bool = False
    row_scaling: bool = False
    trainer: bool = False
    plain_model: bool = False

    def columns(self) -> dict[str, float]:
        """The properties of a job that its stack gives."""
        own = {name: float(value) for name, value in vars(self).items() if name not in ("family", "framework")}
        return {**own, "zero_engine": float(self.family == "zero")}


@dataclass(frozen=True)
class Profile:
    """Degrees of freedom of a backend's layouts, and its traits."""

    name: str
    traits: Traits
    zero_stages: tuple[int, ...] = ()
    tensor: bool = False
    pipeline: bool = False
    recompute: bool = True
    offload_optimizer: bool = False
    offload_parameters: bool = False
    #: Megatron's distributed optimizer cannot be switched off
    always_sharded: bool = False
    #: whether each decoding step under ZeRO-3 gathers the weights anew
    gathers_to_decode: bool = False
    #: whether it can gather them once for all steps instead
    gathers_once: bool = False
    #: the vocabulary is padded to a common multiple of this and the tensor parallel degree
    vocabulary_multiple: int = 1
    #: or to one of their product, which is more
    pads_each_rank: bool = False
    #: tensor parallelism divides the value head too; else each of its ranks holds all of it
    splits_value_head: bool = False
    #: the reference waits in host memory in fp32 and takes the policy's place for its pass (``Training.swapped``)
    swaps_reference: bool = False
    #: experts can be spread over data parallel ranks
    experts: bool = False
    #: tensor parallelism divides experts too
    expert_tensor: bool = False
    #: a sample can be spread over ranks, each with a part of its tokens
    context: bool = False
    #: a stage of a pipeline can hold several parts of the model, which divides the bubble
    interleaves: bool = False
    #: generates with an engine alone
    engine_only: bool = False
    #: matrix products of training, and an engine's weights, are asked for in fp8
    fp8: bool = False

    @property
    def stack(self) -> str:
        """What published iterations of this stack are told apart by: framework, and what trains."""
        return f"{self.traits.framework} {'megatron' if self.traits.family == 'megatron' else 'fsdp'}"


#: The engine backends compute attention as docs/measuring.md says; the trainers as their pinned versions do. Whole
#: trainers take host work that the suite's own loop does not (``Traits.trainer``).
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "deepspeed",
            Traits("zero", "deepspeed", plain_model=True),
            zero_stages=(0, 1, 2, 3),
            offload_optimizer=True,
            offload_parameters=True,
            gathers_to_decode=True,
            gathers_once=True,
            vocabulary_multiple=128,
        ),
        Profile(
            "megatron",
            Traits("megatron", "megatron core"),
            tensor=True,
            pipeline=True,
            experts=True,
            offload_optimizer=True,
            vocabulary_multiple=128,
        ),
        Profile(
            "trlx-deepspeed",
            Traits("zero", "trlx deepspeed", fused_attention=False, plain_model=True),
            zero_stages=(0, 1, 2, 3),
            recompute=False,
            offload_optimizer=True,
            offload_parameters=True,
            gathers_to_decode=True,
        ),
        Profile(
            "trlx-ddp",
            Traits("zero", "trlx ddp", fused_attention=False, plain_model=True),
            zero_stages=(0,),
            recompute=False,
        ),
        Profile(
            "trlx-nemo",
            Traits("megatron", "trlx nemo", fused_attention=False),
            tensor=True,
            always_sharded=True,
            vocabulary_multiple=128,
            pads_each_rank=True,
            splits_value_head=True,
            swaps_reference=True,
        ),
        Profile(
            "verl",
            Traits("fsdp", "verl", trainer=True),
            zero_stages=(3,),
            context=True,
            offload_optimizer=True,
            engine_only=True,
        ),
        Profile(
            "nemo-rl",
            Traits("megatron", "nemo-rl", trainer=True),
            tensor=True,
            pipeline=True,
            experts=True,
            expert_tensor=True,
            context=True,
            interleaves=True,
            vocabulary_multiple=128,
            engine_only=True,
        ),
        *(
            Profile(
                name,
                Traits("zero", framework, trainer=True),
                zero_stages=(2, 3),
                offload_optimizer=True,
                engine_only=True,
            )
            for name, framework in (("openrlhf", "openrlhf"), ("trl-grpo", "trl"))
        ),
    )
}


def find_profile(name: str) -> Profile:
    """The backend's profile; UsageError with the nearest names for one the planner does not know."""
    profile = PROFILES.get(name.strip().lower())
    if profile is None:
        raise UsageError(
            f"the planner knows no backend {name!r}{nearest(name, PROFILES)}; known: {', '.join(PROFILES)}"
        )
    return profile
