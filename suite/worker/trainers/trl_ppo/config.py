"""The manifest in the words of TRL, Accelerate and DeepSpeed; standard library alone."""

from typing import Any, Dict

from suite.worker.deepspeed_json import uses_deepspeed
from suite.worker.hugging_face import training_arguments


def ppo_config(manifest: Dict[str, Any], iterations: int, folder: str) -> Dict[str, Any]:
    """What ``PPOConfig`` takes. One of its updates is an iteration: generation, scores, all optimizer steps.

    Precision and the micro batches of a step are Accelerate's to know (``accelerate_variables``): by TRL's arguments
    alone Accelerate would step once an epoch, however many mini batches were asked for.
    """
    workload, work, ppo = manifest["workload"], manifest["work"], manifest["workload"]["ppo"]
    return {
        **training_arguments(manifest, folder),
        # a field here that hides the property of its base class, which needs a number
        "world_size": manifest["layout"]["data"],
        "total_episodes": iterations * work["global_rollouts"],
        # TRL's meaning: micro batches of all the samples of a rank
        "gradient_accumulation_steps": work["replica_rollouts"] // work["micro_batch"],
        "num_mini_batches": workload["optimizer_steps"],
        "num_ppo_epochs": workload["ppo_epochs"],
        "local_rollout_forward_batch_size": work["replica_rollouts"],
        "response_length": workload["new_tokens"],
        "stop_token": None,
        "kl_coef": ppo["kl_coefficient"],
        "gamma": ppo["discount"],
        "lam": ppo["gae_lambda"],
        "cliprange": ppo["clip_ratio"],
        "cliprange_value": ppo["clip_value"],
        "vf_coef": ppo["value_coefficient"],
        "bf16": False,
        "gradient_checkpointing": False,
        "use_cpu": manifest["measure"]["device"] == "cpu" and not uses_deepspeed(manifest),
        "num_sample_generations": 0,
    }
