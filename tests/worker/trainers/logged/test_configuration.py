"""What is written for each trainer: keys that its configuration has, and the manifest's work under them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from suite.worker.trainers.areal.configuration import configuration as areal
from suite.worker.trainers.nemo_rl.configuration import REGISTERED
from suite.worker.trainers.nemo_rl.configuration import configuration as nemo_rl
from suite.worker.trainers.skyrl.configuration import configuration as skyrl
from tests.worker.trainers.logged.made import HERE, LOGS, body, made_manifest

#: keys that NeMo-RL 0.7.0 reads beside those of its file (grpo.py:180, vllm_worker.py:516, data/__init__.py:18)
NEMO_RL_ALSO = {
    "defaults",
    "env." + REGISTERED,
    "env.{}.manifest".format(REGISTERED),
    "grpo.skip_reference_policy_logprobs_calculation",
    "policy.generation.ignore_eos",
    *("data.train." + key for key in ("data_path", "env_name", "processor", "prompt_file", "system_prompt_file")),
}
#: what asks for the manifest's 8 prompts of 2 samples, 8 + 8 tokens, 2 optimizer steps and 4 iterations on 2 devices
WORK: dict[str, dict[str, Any]] = {
    "nemo-rl": {
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
    },
    "skyrl": {
        "trainer.train_batch_size": 8,
        "generator.n_samples_per_prompt": 2,
        "trainer.policy_mini_batch_size": 4,
        "trainer.max_training_steps": 4,
        "trainer.algorithm.use_kl_loss": False,
        "trainer.placement.policy_num_gpus_per_node": 2,
        "generator.sampling_params.max_generate_length": 8,
        "generator.sampling_params.additional_kwargs.ignore_eos": True,
        "generator.inference_engine.num_engines": 2,
    },
    "areal": {
        "train_dataset.batch_size": 8,
        "gconfig.n_samples": 2,
        "total_train_steps": 4,
        "ref": None,
        "actor.ppo_n_minibatches": 2,
        "actor.backend": "fsdp:d2",
        "actor.mb_spec.max_tokens_per_mb": 2 * 16,
        "gconfig.max_new_tokens": 8,
        "gconfig.ignore_eos": True,
        "rollout.max_head_offpolicyness": 0,
        "rollout.backend": "vllm:d2",
    },
}


def dotted(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Of nested objects every key by its path, with its value; lists of objects have the keys of their first."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        for key, part in value.items():
            yield prefix + key, part
            yield from dotted(part, f"{prefix}{key}.")


def written(name: str, kl_coefficient: float) -> dict[str, Any]:
    manifest = body(made_manifest(name, kl_coefficient=kl_coefficient))
    if name == "nemo-rl":
        return dict(dotted(nemo_rl(manifest, "/run", "/opt/nemo-rl/examples/configs/grpo_math_1B.yaml")))
    return dict(dotted((areal if name == "areal" else skyrl)(manifest, "/run")))


@pytest.mark.parametrize("kl_coefficient", [0.0, 0.001])
@pytest.mark.parametrize("name", LOGS)
def test_every_key_is_one_that_the_trainer_has(name: str, kl_coefficient: float) -> None:
    (known,) = (HERE / "keys").glob(f"{name}-*.json")
    # what is handed on to classes of torch and vLLM
    free = ("policy.optimizer.kwargs.", "policy.scheduler.", "additional_kwargs.", "engine_init_kwargs.")
    own = {key for key in written(name, kl_coefficient) if not any(handed in key for handed in free)}
    assert own - set(json.loads(known.read_text())) - (NEMO_RL_ALSO if name == "nemo-rl" else set()) == set()


@pytest.mark.parametrize("name", WORK)
def test_the_work_is_the_manifests_and_without_a_kl_coefficient_there_is_no_reference(name: str) -> None:
    assert WORK[name].items() <= written(name, 0.0).items()
