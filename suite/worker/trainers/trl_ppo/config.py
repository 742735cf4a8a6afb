"""The manifest in the words of TRL, Accelerate and DeepSpeed; standard library alone."""

from typing import Any, Dict

from suite.worker.manifest import installed_version
from suite.worker.rank import ConfigError
from suite.worker.trainers.accelerate_launch import accelerate_variables as launched

#: the last release with a PPO trainer; names and lines of the hooks are its own
VERSION = "1.12.0"
#: DeepSpeed's default number of elements in a reduction bucket; it is allocated whatever the model's size.
_DEFAULT_BUCKET_ELEMENTS = 500_000_000


def check_version() -> None:
    """Raise ConfigError unless the TRL of this interpreter is the one whose phase edges are known."""
    found = installed_version("trl")
    if found != VERSION:
        raise ConfigError(
            "TRL's PPO is measured at its last release, trl {}; this interpreter has {}".format(
                VERSION, "none" if found is None else "trl " + found
            )
        )


def uses_deepspeed(manifest: Dict[str, Any]) -> bool:
    """Whether the model runs in DeepSpeed's engine, and not in torch's DistributedDataParallel."""
    return bool(manifest["layout"].get("engine", "deepspeed") == "deepspeed")


def micro_batches(manifest: Dict[str, Any]) -> int:
    """Micro batches of one optimizer step on one rank."""
    return manifest["work"]["replica_batch"] // manifest["work"]["micro_batch"]


def ppo_config(manifest: Dict[str, Any], iterations: int, folder: str) -> Dict[str, Any]:
    """What ``PPOConfig`` takes. One of its updates is an iteration: generation, scores, all optimizer steps.

    Precision and the micro batches of a step are Accelerate's to know (``accelerate_variables``).
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


def deepspeed_config(manifest: Dict[str, Any], trainable_parameters: int) -> Dict[str, Any]:
    """The file that Accelerate hands to DeepSpeed: one optimizer step is the replica's batch in micro batches."""
    layout = manifest["layout"]
    zero: Dict[str, Any] = {
        "stage": layout["zero_stage"],
        "reduce_bucket_size": min(_DEFAULT_BUCKET_ELEMENTS, trainable_parameters),
    }
    if layout["offload_optimizer"]:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": manifest["measure"]["device"] == "cuda"}
    return {
        "train_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        "gradient_accumulation_steps": micro_batches(manifest),
        "gradient_clipping": manifest["workload"]["optimizer"]["gradient_clip"],
        "zero_optimization": zero,
        "bf16": {"enabled": manifest["measure"]["precision"] == "bf16"},
        # torch's AdamW is not on DeepSpeed's lists of tested and of host optimizers; its own would be compiled first.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "wall_clock_breakdown": False,
    }


def accelerate_variables(manifest: Dict[str, Any], deepspeed_file: str) -> Dict[str, str]:
    """What ``accelerate launch`` would set for each rank; ``deepspeed_file`` holds ``deepspeed_config``.

    By TRL's arguments alone Accelerate would step once an epoch, however many mini batches were asked for.
    """
    return launched(manifest, micro_batches(manifest), uses_deepspeed(manifest), deepspeed_file)
