"""What is written for each trainer: keys that its configuration has, and the manifest's work under them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.worker.trainers.areal.configuration import configuration as areal
from suite.worker.trainers.nemo_rl.configuration import REGISTERED
from suite.worker.trainers.nemo_rl.configuration import configuration as nemo_rl
from suite.worker.trainers.skyrl.configuration import configuration as skyrl
from tests.worker.trainers.logged.made import HERE, body, made_manifest

#: keys that NeMo-RL 0.7.0 reads beside those of its file (grpo.py:180, vllm_worker.py:516, data/__init__.py:18)
NEMO_RL_ALSO = {
    "defaults",
    "env." + REGISTERED,
    "env.{}.manifest".format(REGISTERED),
    "grpo.skip_reference_policy_logprobs_calculation",
    "policy.generation.ignore_eos",
    *("data.train." + key for key in ("data_path", "env_name", "processor", "prompt_file", "system_prompt_file")),
}


def known(name: str) -> set[str]:
    return set(json.loads((HERE / "keys" / f"{name}.json").read_text()))


def dotted(value: Any, prefix: str = "") -> Iterator[str]:
    """Of nested objects every key by its path; lists of objects have the keys of their first."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        for key, part in value.items():
            yield prefix + key
            yield from dotted(part, f"{prefix}{key}.")


def written(name: str, **changes: Any) -> dict[str, Any]:
    manifest = body(made_manifest(name, **changes))
    if name == "nemo-rl":
        return nemo_rl(manifest, "/run", "/opt/nemo-rl/examples/configs/grpo_math_1B.yaml")
    return areal(manifest, "/run") if name == "areal" else skyrl(manifest, "/run")


class TestKeys:
    @pytest.mark.parametrize("kl_coefficient", [0.0, 0.001])
    def test_skyrl_has_them_all(self, kl_coefficient: float) -> None:
        assert set(written("skyrl", kl_coefficient=kl_coefficient)) - known("skyrl-0.4.0") == set()

    @pytest.mark.parametrize("kl_coefficient", [0.0, 0.001])
    def test_areal_has_them_all(self, kl_coefficient: float) -> None:
        assert set(dotted(written("areal", kl_coefficient=kl_coefficient))) - known("areal-1.0.4") == set()

    @pytest.mark.parametrize("kl_coefficient", [0.0, 0.001])
    def test_nemo_rl_has_them_all(self, kl_coefficient: float) -> None:
        own = set(dotted(written("nemo-rl", kl_coefficient=kl_coefficient)))
        # its optimizer and scheduler take what torch's classes take
        own = {key for key in own if not key.startswith(("policy.optimizer.kwargs.", "policy.scheduler."))}

        assert own - known("nemo-rl-0.7.0") - NEMO_RL_ALSO == set()


class TestWork:
    def test_nemo_rl(self) -> None:
        own = written("nemo-rl")

        assert (own["grpo"]["num_prompts_per_step"], own["grpo"]["num_generations_per_prompt"]) == (8, 2)
        assert own["grpo"]["max_num_steps"] == 4
        assert own["policy"]["train_global_batch_size"] == 8
        assert own["policy"]["max_total_sequence_length"] == 16
        assert own["policy"]["generation"]["max_new_tokens"] == 8
        assert own["policy"]["generation"]["ignore_eos"] is True
        assert own["policy"]["generation"]["stop_token_ids"] == []
        assert own["cluster"] == {"gpus_per_node": 2, "num_nodes": 1}

    def test_skyrl(self) -> None:
        own = written("skyrl")

        assert (own["trainer.train_batch_size"], own["generator.n_samples_per_prompt"]) == (8, 2)
        assert own["trainer.policy_mini_batch_size"] == 4
        assert own["trainer.max_training_steps"] == 4
        assert own["generator.sampling_params.max_generate_length"] == 8
        assert own["generator.sampling_params.additional_kwargs"] == {"ignore_eos": True}
        assert own["generator.inference_engine.num_engines"] == own["trainer.placement.policy_num_gpus_per_node"] == 2

    def test_areal(self) -> None:
        own = written("areal")

        assert (own["train_dataset"]["batch_size"], own["gconfig"]["n_samples"]) == (8, 2)
        assert (own["total_train_steps"], own["actor"]["ppo_n_minibatches"]) == (4, 2)
        assert (own["gconfig"]["max_new_tokens"], own["gconfig"]["ignore_eos"]) == (8, True)
        assert own["rollout"]["max_head_offpolicyness"] == 0
        assert (own["actor"]["backend"], own["rollout"]["backend"]) == ("fsdp:d2", "vllm:d2")
        assert own["actor"]["mb_spec"]["max_tokens_per_mb"] == 2 * 16

    def test_without_a_kl_coefficient_there_is_no_reference(self) -> None:
        assert written("areal", kl_coefficient=0.0)["ref"] is None
        assert written("skyrl", kl_coefficient=0.0)["trainer.algorithm.use_kl_loss"] is False
        assert written("nemo-rl", kl_coefficient=0.0)["grpo"]["skip_reference_policy_logprobs_calculation"] is True


@pytest.mark.parametrize("name", ["skyrl", "areal", "nemo-rl"])
def test_the_real_configuration_classes_take_it(name: str, tmp_path: Path) -> None:
    """With the package in an interpreter that the environment names; none of the three installs beside the engines."""
    variable = f"SUITE_{name.replace('-', '_').upper()}_PYTHON"
    python = os.environ.get(variable)
    if python is None:
        pytest.skip(f"{variable} names no interpreter with {name} (docs/trainers/{name}.md)")
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(body(made_manifest(name))))
    finished = subprocess.run(
        (python, "-m", "tests.worker.trainers.logged.real_classes", name, str(manifest)), capture_output=True, text=True
    )

    assert finished.returncode == 0, finished.stderr[-3000:]
