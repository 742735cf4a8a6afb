"""NeMo-RL in its own image, timed by its own log; experimental, never run."""

from __future__ import annotations

from suite.backends.own_image import OwnImage


class NemoRl(OwnImage):
    """Its GRPO example on its DTensor policy (FSDP2) and vLLM."""

    name = "nemo-rl"
    image = "nemo-rl"
    title = "NeMo-RL"
    package, version = "nemo-rl", "0.7.0"
    packages = ("torch", "transformers", "ray", "nemo-rl")
    summary = "NeMo-RL's own GRPO trainer on FSDP2 and vLLM, timed by its own log"
