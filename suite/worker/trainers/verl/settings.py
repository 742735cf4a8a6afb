"""A manifest in the words of verl's configuration (0.9.1)."""

from typing import Any, Dict, List

from suite.worker.asked import scores_of_all
from suite.worker.hugging_face import head_width
from suite.worker.manifest import algorithm_of, asked_iterations, learns_values
from suite.worker.models import dtype_name
from suite.worker.vllm_common import memory_share

#: vLLM takes no more tokens into one pass unless told to; verl's default
_BATCHED_TOKENS = 8192
_LEAST_BUCKET_MIB = 16

Settings = Dict[str, Any]


def prompt_rows(manifest: Dict[str, Any], texts: List[str]) -> Dict[str, List[Any]]:
    """Columns of verl's data file: all prompts of all iterations in their order, with the scores of their samples.

    ``texts``: each prompt once, as words of the tokenizer.
    """
    group = manifest["workload"].get("group", 1)
    scores = [score for index in range(asked_iterations(manifest)) for score in scores_of_all(manifest, index).tolist()]
    numbers = range(len(texts))
    return {
        "data_source": ["suite" for _ in texts],
        "prompt": [[{"role": "user", "content": text}] for text in texts],
        "reward_model": [{"ground_truth": ""} for _ in texts],
        "extra_info": [{"index": each, "scores": scores[each * group : (each + 1) * group]} for each in numbers],
    }


def settings(manifest: Dict[str, Any], folders: Dict[str, str]) -> Settings:
    """Dotted name -> value, over verl's own defaults. ``folders``: model, tokenizer, critic, prompts."""
    both = "actor_rollout_ref."
    found = {
        **_trainer(manifest, folders),
        both + "ref.log_prob_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        both + "ref.fsdp_config.mixed_precision": _mixed_precision(manifest),
        **_trained(manifest, folders, "model", both + "model.", both + "actor.", "fsdp_config."),
        **_rollout(manifest, folders),
    }
    if learns_values(manifest):
        found["critic.cliprange_value"] = manifest["workload"]["ppo"]["clip_value"]
        found.update(_trained(manifest, folders, "critic", "critic.model.", "critic.", "fsdp."))
    else:
        found["critic.enable"] = False
    if manifest["measure"]["device"] == "cpu":
        found.update(_on_cpu(manifest["size"], learns_values(manifest)))
    return found


def _trainer(manifest: Dict[str, Any], folders: Dict[str, str]) -> Settings:
    workload, layout = manifest["workload"], manifest["layout"]
    group = workload.get("group", 1)
    found = {
        "data.train_files": folders["prompts"],
        "data.val_files": folders["prompts"],
        "data.train_batch_size": manifest["work"]["global_rollouts"] // group,
        "data.max_prompt_length": workload["prompt_tokens"],
        "data.max_response_length": workload["new_tokens"],
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "trainer.device": manifest["measure"]["device"],
        "trainer.nnodes": layout["nodes"],
        "trainer.n_gpus_per_node": layout["devices_per_node"],
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": asked_iterations(manifest),
        "trainer.val_before_train": False,
        "trainer.logger": ["console"],
        "trainer.resume_mode": "disable",
        "reward.custom_reward_function.path": "pkg://suite.worker.trainers.verl.reward",
        "reward.custom_reward_function.name": "score",
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "SampleRewardManager",
        "reward.reward_manager.module.path": "pkg://suite.worker.trainers.verl.reward",
        **_algorithm(manifest),
    }
    if layout.get("sampler") == "fast":
        found["trainer.v1.sampler.custom_sampler.path"] = "pkg://suite.worker.trainers.verl.sampler"
        found["trainer.v1.sampler.custom_sampler.name"] = "FastReplayBuffer"
    return found


def _algorithm(manifest: Dict[str, Any]) -> Settings:
    ppo, options = manifest["workload"]["ppo"], algorithm_of(manifest)["options"]
    actor = "actor_rollout_ref.actor."
    if learns_values(manifest):
        return {
            "algorithm.adv_estimator": "gae",
            "algorithm.gamma": ppo["discount"],
            "algorithm.lam": ppo["gae_lambda"],
            "algorithm.use_kl_in_reward": True,
            "algorithm.kl_ctrl.kl_coef": ppo["kl_coefficient"],
            actor + "clip_ratio_low": ppo["clip_ratio"],
            actor + "clip_ratio_high": ppo["clip_ratio"],
        }
    return {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": options["scale"],
        actor + "use_kl_loss": options["kl_coefficient"] > 0,
        actor + "kl_loss_coef": options["kl_coefficient"],
        actor + "clip_ratio_low": options["clip_low"],
        actor + "clip_ratio_high": options["clip_high"],
        actor + "loss_agg_mode": "token-mean" if options["loss"] == "token" else "seq-mean-token-mean",
    }


def _trained(
    manifest: Dict[str, Any], folders: Dict[str, str], part: str, model: str, role: str, engine: str
) -> Settings:
    """What the policy and the critic have alike, under the prefixes of a model, of its role and of its engine there."""
    workload, optimizer = manifest["workload"], manifest["workload"]["optimizer"]
    prompts = manifest["work"]["global_rollouts"] // workload.get("group", 1)  # each with its group of samples
    return {
        model + "path": folders[part],
        model + "tokenizer_path": folders["tokenizer"],
        model + "enable_gradient_checkpointing": manifest["layout"]["recompute"] == "full",
        role + "strategy": "fsdp2",
        role + "ppo_mini_batch_size": prompts // workload["optimizer_steps"],
        role + "ppo_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        role + "ppo_epochs": workload["ppo_epochs"],
        role + "optim.clip_grad": optimizer["gradient_clip"],
        role + "optim.lr": optimizer["learning_rate"],
        role + "optim.betas": [optimizer["beta1"], optimizer["beta2"]],
        role + "optim.weight_decay": optimizer["weight_decay"],
        role + "optim.override_optimizer_config": {"eps": optimizer["epsilon"]},
        role + engine + "mixed_precision": _mixed_precision(manifest),
    }


def _mixed_precision(manifest: Dict[str, Any]) -> Dict[str, str]:
    """Weights are kept in fp32, computed with in the run's precision, and gradients reduced in fp32: verl's own way."""
    return {"param_dtype": manifest["measure"]["precision"], "reduce_dtype": "fp32", "buffer_dtype": "fp32"}


def _rollout(manifest: Dict[str, Any], folders: Dict[str, str]) -> Settings:
    workload, rollout = manifest["workload"], "actor_rollout_ref.rollout."
    tokens = workload["prompt_tokens"] + workload["new_tokens"]
    return {
        rollout + "name": "vllm",
        rollout + "n": workload.get("group", 1),
        rollout + "temperature": workload["ppo"]["temperature"],
        rollout + "ignore_eos": True,
        rollout + "seed": manifest["measure"]["seed"],
        rollout + "dtype": dtype_name(manifest["measure"]["precision"]),
        rollout + "tensor_model_parallel_size": 1,
        **memory_share(manifest, rollout + "gpu_memory_utilization"),
        rollout + "max_model_len": tokens,
        rollout + "max_num_batched_tokens": max(_BATCHED_TOKENS, tokens),
        rollout + "log_prob_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        rollout + "engine_kwargs.vllm.tokenizer": folders["tokenizer"],
    }


def _on_cpu(size: Dict[str, Any], has_critic: bool) -> Settings:
    """No compiler, no CUDA graphs, no memory that sleeps, attention as PyTorch has it; one process of each service.

    Weights come in buckets of shared memory, of which each holds the largest of them at least.
    """
    queries = size["heads"] * head_width(size)
    largest = 4 * size["hidden"] * max(size["vocab"], size["ffn"], queries)
    rollout, models = "actor_rollout_ref.rollout.", ["actor_rollout_ref.model."] + ["critic.model."] * has_critic
    found: Settings = {
        rollout + "enforce_eager": True,
        rollout + "free_cache_engine": False,
        rollout + "enable_sleep_mode": False,
        rollout + "checkpoint_engine.update_weights_bucket_megabytes": max(_LEAST_BUCKET_MIB, -(-largest // 2**20)),
        rollout + "agent.num_workers": 1,
        rollout + "engine_kwargs.vllm.distributed_executor_backend": "uni",
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "actor_rollout_ref.actor.use_torch_compile": False,
        "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
        "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
    }
    for model in models:
        found[model + "use_remove_padding"] = False
        found[model + "override_config.attn_implementation"] = "sdpa"
    if has_critic:
        found["critic.fsdp.use_torch_compile"] = False
    return found
