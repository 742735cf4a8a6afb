"""The manifest as the options of OpenRLHF's command line, ``openrlhf.cli.train_ppo_ray``."""

import math
import os
from typing import Any, Dict, List, Sequence, Tuple

from suite.worker.asked import sample_lengths
from suite.worker.manifest import adamw, algorithm_of, learns_values
from suite.worker.vllm_common import SHARE_THAT_MUST_BE_FREE, blocks_for, cache_bytes, memory_share

AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent.py")
VERSION = "0.11.2"
#: what it is told of a data set, a checkpoint and a folder to save to; none of them is used
_UNUSED = "unused"
_GIB = 1 << 30

Options = Dict[str, Any]


def kl_coefficient(manifest: Dict[str, Any]) -> float:
    """0 where there is no reference policy."""
    workload = manifest["workload"]
    own = workload["ppo"] if learns_values(manifest) else workload["algorithm"]["options"]
    return float(own["kl_coefficient"])


def training_ranks(manifest: Dict[str, Any]) -> int:
    """Devices that actor, reference and critic share."""
    return int(manifest["layout"]["devices_per_node"]) - generation_ranks(manifest)


def generation_ranks(manifest: Dict[str, Any]) -> int:
    """Devices that vLLM has for itself; 0 where it shares those of training."""
    return int(manifest["layout"].get("generation_ranks", 0))


def staleness(manifest: Dict[str, Any]) -> int:
    """How many publications old samples may be; 0: OpenRLHF's synchronous trainer."""
    return int(manifest["layout"].get("staleness", 0))


def longest(manifest: Dict[str, Any]) -> Tuple[int, int]:
    prompts, responses = sample_lengths(manifest["workload"], manifest["work"])
    return max(prompts), max(responses)


def cache_gib(manifest: Dict[str, Any]) -> int:
    """Whole GiB of vLLM's cache on a CPU, for all samples of an engine at once."""
    engines = generation_ranks(manifest) or training_ranks(manifest)
    blocks = blocks_for([sum(longest(manifest))] * math.ceil(manifest["work"]["global_rollouts"] / engines))
    return math.ceil(cache_bytes(manifest["size"], manifest["measure"]["precision"], blocks) / _GIB)


def all_options(manifest: Dict[str, Any], policy: str, critic: str) -> Dict[str, List[str]]:
    """Words of every option that differs from OpenRLHF's default or must not follow it, none of a switch.

    ``policy``, ``critic``: folders.
    """
    asked = {**_models(manifest, policy, critic), **_work(manifest), **_optimizers(manifest), **_placement(manifest)}
    words: Dict[str, List[str]] = {}
    for name, value in asked.items():
        if value is True:
            words[name] = []
        elif value is not False and value is not None:
            words[name] = [str(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
    return words


def _models(manifest: Dict[str, Any], policy: str, critic: str) -> Options:
    is_cuda = manifest["measure"]["device"] == "cuda"
    return {
        "actor.model_name_or_path": policy,
        "critic.model_name_or_path": critic if learns_values(manifest) else None,
        "ds.zero_stage": manifest["layout"]["zero_stage"],
        "ds.param_dtype": "bf16",
        "ds.attn_implementation": "flash_attention_2" if is_cuda else "sdpa",
        "ds.adam_offload": manifest["layout"]["offload_optimizer"],
        "actor.gradient_checkpointing_enable": manifest["layout"]["recompute"] == "full",
        "vllm.enforce_eager": not is_cuda,
        "vllm.sync_backend": "nccl" if is_cuda else "gloo",
        "data.prompt_dataset": _UNUSED,
        "data.label_key": "label",
        "ckpt.output_dir": os.path.join(policy, _UNUSED),
        "ckpt.path": os.path.join(policy, _UNUSED),
    }


def _work(manifest: Dict[str, Any]) -> Options:
    workload, work, ranks = manifest["workload"], manifest["work"], training_ranks(manifest)
    group = workload.get("group", 1)
    return {
        "train.agent_func_path": AGENT,
        "train.seed": manifest["measure"]["seed"],
        "train.num_episodes": 1,
        "train.max_epochs": workload["ppo_epochs"],
        "train.batch_size": work["replica_batch"] * ranks,
        "train.micro_batch_size": work["micro_batch"],
        "rollout.batch_size": work["global_rollouts"] // group,
        "rollout.n_samples_per_prompt": group,
        "rollout.micro_batch_size": work["micro_batch"],
        "rollout.max_new_tokens": longest(manifest)[1],
        "rollout.temperature": workload["ppo"]["temperature"],
        "data.max_len": sum(longest(manifest)),
        **_algorithm(manifest),
    }


#: OpenRLHF's names of advantages
_ESTIMATORS = {"ppo": "gae", "grpo": "group_norm", "rloo": "rloo", "reinforce++": "reinforce"}


def _algorithm(manifest: Dict[str, Any]) -> Options:
    """Coefficients. KL is in the reward (estimator k1), but in GRPO's loss (k3)."""
    name, coefficients = algorithm_of(manifest)["name"], manifest["workload"]["ppo"]
    found: Options = {
        "algo.advantage.estimator": _ESTIMATORS[name],
        "algo.kl.init_coef": kl_coefficient(manifest),
        "algo.kl.estimator": "k1",
        "algo.advantage.gamma": 1.0,
    }
    if name == "ppo":
        clip: Sequence[float] = (coefficients["clip_ratio"],) * 2
        found["algo.advantage.gamma"] = coefficients["discount"]
        found["algo.advantage.lambd"] = coefficients["gae_lambda"]
        found["critic.value_clip"] = coefficients["clip_value"]
    else:
        own = manifest["workload"]["algorithm"]["options"]
        clip = (own["clip_low"], own["clip_high"])
        if name == "grpo":
            found["algo.advantage.estimator"] = "group_norm" if own["scale"] else "dr_grpo"
            found["algo.kl.use_loss"], found["algo.kl.estimator"] = True, "k3"
        if name == "rloo" or own.get("loss") == "sequence":
            found["actor.loss_agg_mode"] = "seq-mean-token-mean"
    found["actor.eps_clip_low_high"] = tuple(clip)
    return found


def _optimizers(manifest: Dict[str, Any]) -> Options:
    found: Options = {}
    for model in ("actor", "critic"):
        found.update({"{}.adam.{}".format(model, name): value for name, value in adamw(manifest).items()})
        found[model + ".max_norm"] = manifest["workload"]["optimizer"]["gradient_clip"]
        found[model + ".lr_scheduler"] = "constant"
    return found


def _placement(manifest: Dict[str, Any]) -> Options:
    """Which devices each model has. ``colocate_all`` leaves vLLM out where training is asynchronous."""
    ranks, generating, behind = training_ranks(manifest), generation_ranks(manifest), staleness(manifest)
    sleeps = bool(manifest["layout"].get("engine_sleep"))
    found: Options = {model + ".num_gpus_per_node": ranks for model in ("actor", "ref", "critic", "reward")}
    found["vllm.num_engines"] = generating or ranks
    found["train.colocate_all"] = not generating or behind > 0
    found["train.colocate_actor_ref"] = generating > 0 and not behind
    found["vllm.enable_sleep"] = found["ds.enable_sleep"] = sleeps
    if manifest["measure"]["device"] == "cpu":
        found["vllm.gpu_memory_utilization"] = SHARE_THAT_MUST_BE_FREE
    elif not generating:
        found["vllm.gpu_memory_utilization"] = 0.6 if sleeps else 0.35
    found.update(memory_share(manifest, "vllm.gpu_memory_utilization"))
    if behind:
        found["train.async_enable"], found["train.async_queue_size"] = True, behind
    return found
