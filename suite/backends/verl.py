"""verl's own PPO trainer with a critic, or GRPO: FSDP2, vLLM servers, processes of Ray."""

from suite.backends.base import FSDP2_AND_VLLM, BackendDriver, BackendKind


class Verl(BackendDriver):
    """Every rank is a device: for a worker of FSDP2, which shards everything over all of them, and a vLLM server of its
    own, which take turns."""

    name = "verl"
    kind: BackendKind = "trainer"
    vllm_alone = True
    summary = "verl's own PPO (with a critic) and GRPO trainer on Ray: FSDP2 and vLLM servers"
    #: its vLLM servers look for a model's parts where GPT-2 has none
    families = ("llama", "qwen2", "qwen3")
    algorithms = ("ppo", "grpo")
    #: scores are handed to it before the run
    rewards = ("constant", "pseudo")
    kept_tokens = 3
    steps_by_group = True
    environment = "verl"
    packages: tuple[str, ...] = ("torch", "transformers", "verl", "ray", "TransferQueue", "tensordict")
    hooked = (("verl", "0.9.1"),)
    oldest_transformers = 5
    settings: tuple[str, ...] = ("recompute", "generation", "engine_memory", "sampler")
    usual = FSDP2_AND_VLLM
    extra_work: tuple[str, ...] = ("algorithm", "group", "critic")
    installation = "`make verl` makes an environment for verl beside the engines' (docs/trainers/verl.md)"
