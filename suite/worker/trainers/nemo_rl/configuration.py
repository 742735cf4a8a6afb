"""What NeMo-RL is given: a manifest in the words of its configuration, its prompts, and the rewards of its samples.

Base is examples/configs/grpo_math_1B.yaml of v0.7.0. Imports nothing of NeMo-RL: rank 0 writes it, and the example in
the image reads it.
"""

from collections import defaultdict
from itertools import count
from typing import Any, DefaultDict, Dict, Iterator

from suite.worker.asked import draw_prompts, scores_of_all
from suite.worker.manifest import adamw, asked_iterations
from suite.worker.vllm_common import memory_share

#: what the suite registers with NeMo-RL: an environment, and a processor of prompts
REGISTERED = "suite_numbers"
DATASET = "suite.worker.trainers.nemo_rl.data.NumberedPrompts"


def configuration(manifest: Dict[str, Any], folder: str, base: str) -> Dict[str, Any]:
    """What differs from ``base``, the path of the example's own file, which it inherits from."""
    workload, work, measure = manifest["workload"], manifest["work"], manifest["measure"]
    group, options = workload["group"], workload["algorithm"]["options"]
    return {
        "defaults": base,
        "grpo": {
            "num_prompts_per_step": work["global_rollouts"] // group,
            "num_generations_per_prompt": group,
            "max_num_steps": asked_iterations(manifest),
            "normalize_rewards": options["scale"],
            "use_leave_one_out_baseline": False,
            "val_period": 0,
            "seed": measure["seed"],
            "skip_reference_policy_logprobs_calculation": options["kl_coefficient"] <= 0,
        },
        "loss_fn": {
            "reference_policy_kl_penalty": options["kl_coefficient"],
            "ratio_clip_min": options["clip_low"],
            "ratio_clip_max": options["clip_high"],
            "token_level_loss": options["loss"] == "token",
        },
        "checkpointing": {"enabled": False},
        "policy": _policy(manifest, folder),
        "data": {
            "shuffle": False,
            "train": {
                "dataset_name": DATASET,
                "data_path": folder + "/prompts.jsonl",
                "split_validation_size": 0,
                "env_name": REGISTERED,
                "processor": REGISTERED,
                "prompt_file": None,
                "system_prompt_file": None,
            },
            "default": None,
        },
        "env": {REGISTERED: {}},
        "logger": {"log_dir": folder + "/logs", "monitor_gpus": False},
        "cluster": {"gpus_per_node": manifest["layout"]["devices_per_node"], "num_nodes": 1},
    }


def _policy(manifest: Dict[str, Any], folder: str) -> Dict[str, Any]:
    workload, work, layout = manifest["workload"], manifest["work"], manifest["layout"]
    return {
        "model_name": folder + "/model",
        "train_global_batch_size": work["global_rollouts"] // workload["optimizer_steps"],
        "train_micro_batch_size": work["micro_batch"],
        "max_total_sequence_length": workload["prompt_tokens"] + workload["new_tokens"],
        "dtensor_cfg": {
            "cpu_offload": layout["offload_parameters"],
            "activation_checkpointing": layout["recompute"] == "full",
        },
        "sequence_packing": {"enabled": False},
        "max_grad_norm": workload["optimizer"]["gradient_clip"],
        "optimizer": {"kwargs": adamw(manifest)},
        "scheduler": [
            {"name": "torch.optim.lr_scheduler.ConstantLR", "kwargs": {"factor": 1.0, "total_iters": 1}},
            {"milestones": []},
        ],
        "generation": {
            "max_new_tokens": workload["new_tokens"],
            "temperature": workload["ppo"]["temperature"],
            "ignore_eos": True,
            "stop_token_ids": [],  # null would become the tokenizer's end, which ends a sample all the same
            "vllm_cfg": {
                "enable_vllm_metrics_logger": False,
                **memory_share(manifest, "gpu_memory_utilization"),
            },
        },
    }


#: Joins numbers to a text of one token each; with nothing around it, so that lengths are those of the manifest.
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}{% endfor %}"


def prompts(manifest: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """Every prompt of the run in order: its ``number``, ``tokens``, and the ``scores`` of its samples."""
    from suite.worker.trainers.drawn_model import ordinary

    group, vocab, numbers = manifest["workload"].get("group", 1), manifest["size"]["vocab"], count()
    for iteration in range(asked_iterations(manifest)):
        rows = ordinary(draw_prompts(manifest, iteration)[::group], vocab).tolist()
        for row, scores in zip(rows, scores_of_all(manifest, iteration).view(-1, group).tolist()):
            yield {"number": next(numbers), "tokens": row, "scores": scores}


class Rewards:
    """The manifest's score of each sample, whatever was generated. The samples of a prompt are told apart by the order
    in which they are asked for, so that a group has its scores, but which of them has which is the order of arrival."""

    def __init__(self) -> None:
        self._asked: DefaultDict[int, Iterator[int]] = defaultdict(count)

    def next(self, prompt: Dict[str, Any]) -> float:
        """Of the next sample of one of ``prompts``."""
        return float(prompt["scores"][next(self._asked[prompt["number"]])])
