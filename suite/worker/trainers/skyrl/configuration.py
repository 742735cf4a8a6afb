"""A manifest in the words of SkyRL's configuration (0.4.0: skyrl/train/config/config.py), as its command line takes it.

Imports nothing of SkyRL.
"""

from typing import Any, Dict

from suite.worker.manifest import asked_iterations

ENVIRONMENT = "suite_numbers"
_LOSSES = {"token": "token_mean", "sequence": "sequence_mean"}


def configuration(manifest: Dict[str, Any], folder: str) -> Dict[str, Any]:
    """By dotted key, what differs from SkyRL's defaults or must not change with them."""
    workload, work, measure = manifest["workload"], manifest["work"], manifest["measure"]
    layout, group = manifest["layout"], workload["group"]
    prompts, gpus = work["global_rollouts"] // group, layout["devices_per_node"]
    options, model = workload["algorithm"]["options"], folder + "/model"
    sharding = {"cpu_offload": layout["offload_parameters"], "reshard_after_forward": True}
    return {
        "data.train_data": [folder + "/prompts.parquet"],
        "data.val_data": [],
        "data.dataloader.num_workers": 0,
        "environment.env_class": ENVIRONMENT,
        "trainer.strategy": "fsdp",
        "trainer.placement.colocate_all": True,
        "trainer.placement.policy_num_nodes": 1,
        "trainer.placement.policy_num_gpus_per_node": gpus,
        "trainer.placement.ref_num_nodes": 1,
        "trainer.placement.ref_num_gpus_per_node": gpus,
        "trainer.policy.model.path": model,
        "trainer.ref.model.path": model,
        **{"trainer.policy.fsdp_config." + name: value for name, value in sharding.items()},
        **{"trainer.ref.fsdp_config." + name: value for name, value in sharding.items()},
        **_optimizer(workload["optimizer"], layout),
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.grpo_norm_by_std": options["scale"],
        "trainer.algorithm.use_kl_loss": options["kl_coefficient"] > 0,
        "trainer.algorithm.use_kl_in_reward": False,
        "trainer.algorithm.kl_loss_coef": options["kl_coefficient"],
        "trainer.algorithm.kl_estimator_type": "k3",
        "trainer.algorithm.policy_loss_type": "regular",
        "trainer.algorithm.loss_reduction": _LOSSES[options["loss"]],
        "trainer.algorithm.eps_clip_low": options["clip_low"],
        "trainer.algorithm.eps_clip_high": options["clip_high"],
        "trainer.gradient_checkpointing": layout["recompute"] == "full",
        "trainer.bf16": True,
        "trainer.seed": measure["seed"],
        "trainer.epochs": 1,
        "trainer.max_training_steps": asked_iterations(manifest),
        "trainer.update_epochs_per_batch": 1,
        "trainer.train_batch_size": prompts,
        "trainer.policy_mini_batch_size": prompts // workload["optimizer_steps"],
        "trainer.micro_train_batch_size_per_gpu": work["micro_batch"],
        "trainer.micro_forward_batch_size_per_gpu": work["micro_batch"],
        "trainer.remove_microbatch_padding": False,
        "trainer.max_prompt_length": workload["prompt_tokens"],
        **_nothing_beside(folder),
        "generator.n_samples_per_prompt": group,
        "generator.max_turns": 1,
        "generator.max_input_length": workload["prompt_tokens"],
        "generator.sampling_params.max_generate_length": workload["new_tokens"],
        "generator.sampling_params.temperature": workload["ppo"]["temperature"],
        "generator.sampling_params.top_p": 1.0,
        "generator.sampling_params.additional_kwargs": {"ignore_eos": True},
        "generator.inference_engine.backend": "vllm",
        "generator.inference_engine.num_engines": gpus,
        "generator.inference_engine.tensor_parallel_size": 1,
        "generator.inference_engine.enforce_eager": False,
        "generator.inference_engine.engine_init_kwargs": {
            "max_model_len": workload["prompt_tokens"] + workload["new_tokens"]
        },
    }


def _optimizer(optimizer: Dict[str, Any], layout: Dict[str, Any]) -> Dict[str, Any]:
    own = {
        "lr": optimizer["learning_rate"],
        "adam_betas": [optimizer["beta1"], optimizer["beta2"]],
        "weight_decay": optimizer["weight_decay"],
        "max_grad_norm": optimizer["gradient_clip"],
        "num_warmup_steps": 0,
        "scheduler": "constant_with_warmup",
    }
    return {"trainer.policy.optimizer_config." + name: value for name, value in own.items()}


def _nothing_beside(folder: str) -> Dict[str, Any]:
    """No evaluation, no checkpoint, no upload and no monitor within a measured step."""
    return {
        "trainer.eval_before_train": False,
        "trainer.eval_interval": -1,
        "trainer.ckpt_interval": -1,
        "trainer.hf_save_interval": -1,
        "trainer.resume_mode": "none",
        "trainer.ckpt_path": folder + "/checkpoints",
        "trainer.export_path": folder + "/exports",
        "trainer.log_path": folder + "/logs",
        "trainer.logger": "console",
        "trainer.project_name": "suite",
        "trainer.run_name": "suite",
        "trainer.enable_ray_gpu_monitor": False,
        "trainer.print_example_interval": 0,
        "trainer.num_logger_train_samples": 0,
        "trainer.num_logger_eval_samples": 0,
        "trainer.dump_eval_results": False,
    }
