"""What each backend can lay out, and how it runs: the planner's view of the stacks that the suite measures."""

from __future__ import annotations

from dataclasses import dataclass

from suite.planner.stacks import Traits
from suite.spec.base import UsageError
from suite.spec.names import nearest


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
    #: gradients stand in a buffer of their own in fp32 throughout, which an offloaded optimizer leaves on the device
    gradient_buffer: bool = False
    #: bytes that an offloaded optimizer leaves on the device for each parameter of its share: the fp32 weights, where
    #: it keeps copies of them in host memory (megatron-core's HybridDeviceOptimizer)
    offload_leaves: int = 0
    #: the vocabulary is padded to a common multiple of this and the tensor parallel degree
    vocabulary_multiple: int = 1
    #: or to one of their product, which is more
    pads_each_rank: bool = False
    #: tensor parallelism divides the value head too; else each of its ranks holds all of it
    splits_value_head: bool = False
    #: the reference waits in host memory in fp32 and takes the policy's place for its pass (``Iterations.swapped``)
    swaps_reference: bool = False
    #: experts can be spread over data parallel ranks
    experts: bool = False
    #: the model is Hugging Face's, run eagerly: slower by what published PPO rates show (``RateBand``)
    plain_model: bool = False


def _traits(family: str, framework: str, fused: bool, zero: bool) -> Traits:
    return Traits(
        family=family,
        framework=framework,
        fused_attention=fused,
        engine=False,
        interleaves=False,
        zero_engine=zero,
        eager=True,
    )


#: The engine backends compute attention as docs/measuring.md says; the trainers as their pinned versions do.
PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "deepspeed",
            _traits("zero", "deepspeed", fused=True, zero=True),
            zero_stages=(0, 1, 2, 3),
            offload_optimizer=True,
            offload_parameters=True,
            gathers_to_decode=True,
            gathers_once=True,
            vocabulary_multiple=128,
            plain_model=True,
        ),
        Profile(
            "megatron",
            _traits("megatron", "megatron core", fused=True, zero=False),
            tensor=True,
            pipeline=True,
            experts=True,
            offload_optimizer=True,
            gradient_buffer=True,
            offload_leaves=4,
            vocabulary_multiple=128,
        ),
        Profile(
            "trlx-deepspeed",
            _traits("zero", "trlx deepspeed", fused=False, zero=True),
            zero_stages=(0, 1, 2, 3),
            recompute=False,
            offload_optimizer=True,
            offload_parameters=True,
            gathers_to_decode=True,
            plain_model=True,
        ),
        Profile(
            "trlx-ddp",
            _traits("zero", "trlx ddp", fused=False, zero=True),
            zero_stages=(0,),
            recompute=False,
            plain_model=True,
        ),
        Profile(
            "trlx-nemo",
            _traits("megatron", "trlx nemo", fused=False, zero=False),
            tensor=True,
            always_sharded=True,
            gradient_buffer=True,
            vocabulary_multiple=128,
            pads_each_rank=True,
            splits_value_head=True,
            swaps_reference=True,
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
