"""What is written for NeMo-RL: keys that its configuration has, and the manifest's work under them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from suite.worker.trainers.nemo_rl.configuration import REGISTERED, configuration
from tests.worker.trainers.nemo_rl.made import HERE, body, made_manifest

#: keys that NeMo-RL 0.7.0 reads beside those of its file (grpo.py:180, vllm_worker.py:516, data/__init__.py:18)
ALSO = {
    "defaults",
    "env." + REGISTERED,
    f"env.{REGISTERED}.manifest",
    "grpo.skip_reference_policy_logprobs_calculation",
    "policy.generation.ignore_eos",
    *("data.train." + key for key in ("data_path", "env_name", "processor", "prompt_file", "system_prompt_file")),
}
#: what is handed on to classes of torch
FREE = ("policy.optimizer.kwargs.", "policy.scheduler.")
#: what asks for the manifest's 8 prompts of 2 samples, 8 + 8 tokens, 2 optimizer steps and 4 iterations on 2 devices
WORK: dict[str, Any] = {
    "grpo.num_prompts_per_step": 8,
    "grpo.num_generations_per_prompt": 2,
    "grpo.max_num_steps": 4,
    "grpo.skip_reference_policy_logprobs_calculation": True,
    "policy.train_global_batch_size": 8,
    "policy.max_total_sequence_length": 16,
    "policy.generation.max_new_tokens": 8,
    "policy.generation.ignore_eos": True,
    "policy.generation.stop_token_ids": [],
    "cluster.gpus_per_node": 2,
    "cluster.num_nodes": 1,
}


def dotted(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Of nested objects every key by its path, with its value; lists of objects have the keys of their first."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        for key, part in value.items():
            yield prefix + key, part
            yield from dotted(part, f"{prefix}{key}.")


def written(kl_coefficient: float) -> dict[str, Any]:
    manifest = body(made_manifest(kl_coefficient))
    return dict(dotted(configuration(manifest, "/run", "/opt/nemo-rl/examples/configs/grpo_math_1B.yaml")))


@pytest.mark.parametrize("kl_coefficient", [0.0, 0.001])
def test_every_key_is_one_that_it_has(kl_coefficient: float) -> None:
    own = {key for key in written(kl_coefficient) if not key.startswith(FREE)}
    assert own - set(json.loads((HERE / "keys-0.7.0.json").read_text())) - ALSO == set()


def test_the_work_is_the_manifests_and_without_a_kl_coefficient_there_is_no_reference() -> None:
    assert WORK.items() <= written(0.0).items()
