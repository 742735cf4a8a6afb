"""A manifest in the words of AReaL's configuration (1.0.4: areal/api/cli_args.py, ``GRPOConfig``).

Imports nothing of AReaL.
"""

from typing import Any, Dict, List

from suite.worker.manifest import asked_iterations

_NAMES = {"experiment_name": "suite", "trial_name": "run"}
_NEVER = {"freq_epochs": None, "freq_steps": None, "freq_secs": None}


def configuration(manifest: Dict[str, Any], folder: str) -> Dict[str, Any]:
    """The whole experiment, as its YAML file holds it."""
    workload, work, measure = manifest["workload"], manifest["work"], manifest["measure"]
    gpus, group = manifest["layout"]["devices_per_node"], workload["group"]
    options, steps, model = workload["algorithm"]["options"], asked_iterations(manifest), folder + "/model"
    here = {**_NAMES, "fileroot": folder}
    actor = _actor(manifest, model)
    reference = {**_engine(manifest, model), "scheduling_strategy": _beside("actor"), "offload": True}
    return {
        **_NAMES,
        "seed": measure["seed"],
        "enable_offload": True,
        "total_train_epochs": 1,
        "total_train_steps": steps,
        "tokenizer_path": model,
        "cluster": {
            "n_nodes": 1,
            "n_gpus_per_node": gpus,
            "fileroot": folder,
            "name_resolve": {"type": "nfs", "nfs_record_root": folder + "/names"},
        },
        "scheduler": {"type": "local"},
        "gconfig": {
            "n_samples": group,
            "max_new_tokens": workload["new_tokens"],
            "max_tokens": workload["prompt_tokens"] + workload["new_tokens"],
            "temperature": workload["ppo"]["temperature"],
            "top_p": 1.0,
            "ignore_eos": True,
            "stop_token_ids": [],
        },
        "rollout": {
            **here,
            "backend": "vllm:d{}".format(gpus),
            "tokenizer_path": model,
            "max_head_offpolicyness": 0,
            "consumer_batch_size": work["global_rollouts"] // group,
            "max_concurrent_rollouts": work["global_rollouts"],
            "scheduling_spec": _workers(),
            "scheduling_strategy": _beside("actor"),
        },
        "actor": actor,
        "ref": reference if options["kl_coefficient"] > 0 else None,
        "vllm": {
            "model": model,
            "seed": measure["seed"],
            "dtype": "bfloat16",
            "max_model_len": workload["prompt_tokens"] + workload["new_tokens"],
            "max_num_seqs": max(1, work["global_rollouts"] // gpus),
            "gpu_memory_utilization": 0.6,
            "enable_sleep_mode": True,
        },
        "train_dataset": {
            "path": folder + "/prompts.jsonl",
            "type": "rl",
            "batch_size": work["global_rollouts"] // group,
            "shuffle": False,
            "drop_last": True,
        },
        "valid_dataset": None,
        "saver": {**here, **_NEVER},
        "evaluator": {**here, **_NEVER},
        "recover": {**here, **_NEVER, "mode": "disabled"},
        "stats_logger": {**here, "wandb": {"mode": "disabled"}, "swanlab": {"mode": "disabled"}},
    }


def _engine(manifest: Dict[str, Any], model: str) -> Dict[str, Any]:
    """What actor and reference have in common."""
    workload, work, layout = manifest["workload"], manifest["work"], manifest["layout"]
    length = workload["prompt_tokens"] + workload["new_tokens"]
    return {
        **_NAMES,
        "backend": "fsdp:d{}".format(layout["devices_per_node"]),
        "path": model,
        "dtype": "bfloat16",
        "disable_dropout": True,
        "temperature": workload["ppo"]["temperature"],
        "mb_spec": {"n_mbs": 1, "max_tokens_per_mb": work["micro_batch"] * length},
        "scheduling_spec": _workers(),
    }


def _actor(manifest: Dict[str, Any], model: str) -> Dict[str, Any]:
    workload, layout = manifest["workload"], manifest["layout"]
    optimizer, options = workload["optimizer"], workload["algorithm"]["options"]
    return {
        **_engine(manifest, model),
        "gradient_checkpointing": layout["recompute"] == "full",
        "fsdp": {"offload_params": layout["offload_parameters"]},
        "weight_update_mode": "disk",  # the only one that AReaL has where generation is on the same devices
        "optimizer": {
            "type": "adam",
            "lr": optimizer["learning_rate"],
            "weight_decay": optimizer["weight_decay"],
            "beta1": optimizer["beta1"],
            "beta2": optimizer["beta2"],
            "eps": optimizer["epsilon"],
            "lr_scheduler_type": "constant",
            "warmup_steps_proportion": 0.0,
            "gradient_clipping": optimizer["gradient_clip"],
        },
        "ppo_n_minibatches": workload["optimizer_steps"],
        "eps_clip": options["clip_low"],
        "eps_clip_higher": options["clip_high"],
        "discount": 1.0,
        "gae_lambda": 1.0,
        "kl_ctl": options["kl_coefficient"],
        "reward_scaling": 1.0,
        "reward_bias": 0.0,
        "reward_norm": {
            "mean_level": "group",
            "std_level": "group" if options["scale"] else None,
            "group_size": workload["group"],
        },
        "adv_norm": None,
        "recompute_logprob": True,
        "use_decoupled_loss": False,
        "max_new_tokens": workload["new_tokens"],
    }


def _workers() -> List[Dict[str, Any]]:
    return [{"task_type": "worker", "port_count": 2, "gpu": 1, "cmd": "python3 -m areal.infra.rpc.rpc_server"}]


def _beside(role: str) -> Dict[str, str]:
    return {"type": "colocation", "target": role}
