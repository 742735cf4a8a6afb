"""How a published stack ran, from its name and a row's notes: the traits that its speed depends on."""

import re

from suite.planner.profiles import Traits

_PAREN = re.compile(r"\([^)]{0,500}\)")
_WORD = re.compile(r"[a-z]+")


def traits(framework: str, notes: str = "", precision: str = "") -> Traits:
    """Traits by the words that occur in a framework's name, a row's notes and its precision.

    Fused attention came to all of them in 2022; Megatron-LM and DeepSpeed rows without a newer name are from before.
    NVIDIA's newer stacks (NeMo, Megatron-Core, Bridge, AutoModel) run on Transformer Engine.
    """
    name = framework.lower()
    text = f"{name} {notes.lower()}"
    deepspeed = "deepspeed" in name
    engine = any(word in name for word in ("nemo", "megatron-core", "bridge", "automodel", "transformer engine"))
    megatron = ("megatron" in name or (engine and "automodel" not in name)) and not deepspeed
    xla = any(word in name for word in ("maxtext", "paxml", "jax", "xla"))
    return Traits(
        family="megatron" if megatron else "zero" if deepspeed else "xla" if xla else "fsdp",
        framework=plain_framework(framework),
        fused_attention=not ("megatron-lm" in name or deepspeed),
        engine=engine,
        eager="eager" in text,
        asynchronous_tensor=bool(re.search(r"async[a-z]{0,40} ?tp", text)),
        row_scaling="rowwise" in precision.lower() or "row-wise" in precision.lower(),
    )


def plain_framework(framework: str) -> str:
    """The first two words of a framework's name, without versions and remarks in parentheses."""
    words = _WORD.findall(_PAREN.sub(" ", framework.lower()))
    return " ".join([word for word in words if len(word) > 1][:2]) or "unknown"
