"""The manifest in the words of TRL, Accelerate and DeepSpeed; standard library alone."""

from typing import Any, Dict

from suite.worker.deepspeed_json import uses_deepspeed


def ppo_config(manifest: Dict[str, Any], iterations: int, folder: str) -> Dict[str, Any]:
    """What ``PPOConfig`` takes. One of its updates is an iteration: generation, scores, all optimizer steps.

    Precision and the micro batches of a step are Accelerate's to know (``accelerate_variables``): by TRL's arguments
    alone Accelerate would step once an epoch, however many mini batches were asked for.
    """
    workload, work, ppo = manifest["workload"], manifest["work"], manifest["workload"]["ppo"]
    optimizer, layout = workload["optimizer"], manifest["layout"]
    return {
        "output_dir": folder,
        "seed": manifest["measure"]["seed"],
        # a field here that hides the property of its base class, which needs a number
        "world_size": layout["data"],
        "total_episodes": iterations * work["global_rollouts"],
        "per_device_train_batch_size": work["micro_batch"],
        # TRL's meaning: micro batches of all the samples of a rank
        "gradient_accumulation_steps": work["replica_rollouts"] // work["micro_batch"],
        "num_mini_batches": workload["optimizer_steps"],
        "num_ppo_epochs": workload["ppo_epochs"],
        "local_rollout_forward_batch_size": work["replica_rollouts"],
        "response_length": workload["new_tokens"],
        "stop_token": None,
        "temperature": ppo["temperature"],
        "kl_coef": ppo["kl_coefficient"],
        "gamma": ppo["discount"],
        "lam": ppo["gae_lambda"],
        "cliprange": ppo["clip_ratio"],
        "cliprange_value": ppo["clip_value"],
        "vf_coef": ppo["value_coefficient"],
        "learning_rate": optimizer["learning_rate"],
        "adam_beta1": optimizer["beta1"],
        "adam_beta2": optimizer["beta2"],
        "adam_epsilon": optimizer["epsilon"],
        "weight_decay": optimizer["weight_decay"],
        "max_grad_norm": optimizer["gradient_clip"],
        "lr_scheduler_type": "constant",
        "ds3_gather_for_generation": layout.get("gather_for_generation", False),
        "bf16": False,
        "gradient_checkpointing": False,
        "use_cpu": manifest["measure"]["device"] == "cpu" and not uses_deepspeed(manifest),
        "num_sample_generations": 0,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
