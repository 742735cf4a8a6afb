"""AReaL in its own image, timed by its own log; experimental, never run."""

from __future__ import annotations

from suite.backends.own_image import OwnImage


class Areal(OwnImage):
    """Its PPO trainer without a critic on FSDP2 and vLLM, synchronous (no sample is older than its weights)."""

    name = "areal"
    image = "areal"
    title = "AReaL"
    package, version = "areal", "1.0.4"
    packages = ("torch", "transformers", "vllm", "areal")
    summary = "AReaL's own GRPO trainer on FSDP2 and vLLM, synchronous, timed by its own log"
