"""SkyRL in its own image, timed by its own log; experimental, never run."""

from __future__ import annotations

from suite.backends.own_image import OwnImage


class SkyRl(OwnImage):
    """Its synchronous trainer on FSDP2 and vLLM.

    Llama alone: its data set is text, and a folder that says Qwen gets Qwen's tokenizer, which takes numbers apart.
    """

    name = "skyrl"
    image = "skyrl"
    title = "SkyRL"
    package, version = "skyrl", "0.4.0"
    packages = ("torch", "transformers", "ray", "vllm", "skyrl")
    families = ("llama",)
    summary = "SkyRL's own GRPO trainer on FSDP2 and vLLM, timed by its own log"
