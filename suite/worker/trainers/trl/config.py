"""The manifest in the words of TRL, transformers' trainer, Accelerate and DeepSpeed; standard library alone."""

from typing import Any, Dict

from suite.worker import hugging_face
from suite.worker.deepspeed_json import engine_of, micro_batches, training_json
from suite.worker.manifest import algorithm_of
from suite.worker.vllm_common import memory_share

#: the suite's weighting of tokens by TRL's names: all of an optimizer step alike, or all samples alike
_LOSSES = {"token": "dapo", "sequence": "grpo"}


def uses_vllm(manifest: Dict[str, Any]) -> bool:
    """Whether vLLM generates, in each rank's process, and not transformers."""
    return bool(manifest["layout"].get("generation", "hf") == "vllm")


def passes(manifest: Dict[str, Any]) -> int:
    """Forward and backward passes of one iteration on one rank."""
    workload = manifest["workload"]
    return int(micro_batches(manifest) * workload["optimizer_steps"] * workload["ppo_epochs"])


def scores(manifest: Dict[str, Any]) -> bool:
    """Whether log-probs of the policy are computed before training.

    RLOO always does. GRPO takes those of the first training pass for them where the weights are still those that
    generated, unless it corrects for vLLM's log-probs (``grpo_trainer.py``, line 2643).
    """
    steps = manifest["workload"]["optimizer_steps"] * manifest["workload"]["ppo_epochs"]
    return algorithm_of(manifest)["name"] == "rloo" or uses_vllm(manifest) or steps > 1


def training_arguments(manifest: Dict[str, Any], iterations: int, folder: str, parameters: int) -> Dict[str, Any]:
    """What ``GRPOConfig`` or ``RLOOConfig`` takes. An iteration is one generation and its optimizer steps.

    ``folder``: where TRL would save something; ``parameters``: how many train. Nothing that is sampled ends a response,
    because the model knows no special token.
    """
    workload, work, measure = manifest["workload"], manifest["work"], manifest["measure"]
    steps, engine = workload["optimizer_steps"] * workload["ppo_epochs"], engine_of(manifest)
    algorithm, options = algorithm_of(manifest)["name"], algorithm_of(manifest)["options"]
    arguments = {
        **hugging_face.training_arguments(manifest, folder),
        "use_cpu": measure["device"] == "cpu",
        "gradient_accumulation_steps": micro_batches(manifest),
        "steps_per_generation": work["replica_rollouts"] // work["micro_batch"],
        "num_iterations": workload["ppo_epochs"],
        "max_steps": iterations * steps,
        "num_generations": workload.get("group", 1),
        "max_completion_length": workload["new_tokens"],
        "shuffle_dataset": False,
        "bf16": measure["precision"] == "bf16",
        "gradient_checkpointing": manifest["layout"]["recompute"] == "full",
        "logging_steps": steps,  # once an iteration
        "beta": options["kl_coefficient"],
        "epsilon": options["clip_low"],
        "epsilon_high": options["clip_high"],
    }
    if algorithm == "rloo":
        arguments["normalize_advantages"] = False
    else:
        arguments["loss_type"] = _LOSSES[options["loss"]]
        arguments["scale_rewards"] = "group" if options["scale"] else "none"
    if uses_vllm(manifest):  # colocated; ids go in and out, and no text
        arguments["use_vllm"] = True
        arguments["vllm_max_model_length"] = workload["prompt_tokens"] + workload["new_tokens"]
        arguments["generation_kwargs"] = {"ignore_eos": True, "detokenize": False}
        arguments.update(memory_share(manifest, "vllm_gpu_memory_utilization"))
    if engine == "deepspeed":
        arguments["deepspeed"] = training_json(manifest, parameters)
    elif engine == "fsdp2":
        own = {"fsdp_version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": True}
        arguments.update(fsdp=True, fsdp_config=own)
    return arguments
