"""The manifest in the words of trlx, Accelerate and DeepSpeed; standard library alone."""

from typing import Any, Dict, List, Optional

from suite.worker.manifest import adamw

#: trlx's own way to a constant learning rate: a cosine without end between two equal rates
_ENDLESS = 1e12


def trlx_config(manifest: Dict[str, Any], iterations: int, tokenizer: str, suppressed: List[int]) -> Dict[str, Any]:
    """What ``TRLConfig.from_dict`` takes. An iteration is one call of ``make_experience`` and its optimizer steps.

    ``suppressed``: ids of special tokens, which must not be sampled, because decoding drops them. ``num_rollouts``,
    ``chunk_size`` and the batch sizes are per rank in trlx.
    """
    workload, work, ppo = manifest["workload"], manifest["work"], manifest["workload"]["ppo"]
    layers: Optional[int] = workload["trainable_layers"]
    optimizer = adamw(manifest)
    return {
        "train": {
            "seq_length": workload["prompt_tokens"] + workload["new_tokens"],
            "epochs": iterations,
            "total_steps": iterations * workload["ppo_epochs"] * workload["optimizer_steps"],
            "batch_size": work["replica_batch"],
            "minibatch_size": work["micro_batch"],
            "checkpoint_interval": 10**9,
            "eval_interval": 10**9,
            "pipeline": "PromptPipeline",
            "trainer": "AcceleratePPOTrainer",
            "tracker": None,
            "save_best": False,
            "save_optimizer": False,
            "seed": manifest["measure"]["seed"],
        },
        "model": {
            "model_path": "random-weights",
            "model_arch_type": "causal",
            "num_layers_unfrozen": -1 if layers is None else layers,
        },
        "tokenizer": {"tokenizer_path": tokenizer, "padding_side": "left", "truncation_side": "right"},
        "optimizer": {"name": "adamw", "kwargs": optimizer},
        "scheduler": {"name": "cosine_annealing", "kwargs": {"T_max": _ENDLESS, "eta_min": optimizer["lr"]}},
        "method": {
            "name": "PPOConfig",
            "num_rollouts": work["replica_rollouts"],
            "chunk_size": work["replica_rollouts"],
            "ppo_epochs": workload["ppo_epochs"],
            "init_kl_coef": ppo["kl_coefficient"],
            "target": None,
            "horizon": 10000,
            "gamma": ppo["discount"],
            "lam": ppo["gae_lambda"],
            "cliprange": ppo["clip_ratio"],
            "cliprange_value": ppo["clip_value"],
            "vf_coef": ppo["value_coefficient"],
            "scale_reward": None,
            "ref_mean": None,
            "ref_std": None,
            "cliprange_reward": 10,
            "gen_kwargs": {
                "min_new_tokens": workload["new_tokens"],
                "max_new_tokens": workload["new_tokens"],
                "do_sample": True,
                "temperature": ppo["temperature"],
                "top_k": 0,
                "top_p": 1.0,
                # a list would be taken for a sweep of evaluations
                "suppress_tokens": tuple(suppressed),
            },
        },
    }


def learn(trainer: Any, manifest: Dict[str, Any], texts: List[str], evaluated: int) -> None:
    """As ``trlx.train`` goes on after it has built its trainer, with these prompts, and the first for evaluation."""
    from trlx.utils.loading import get_pipeline

    kind, longest = get_pipeline(trainer.config.train.pipeline), manifest["workload"]["prompt_tokens"]
    trainer.add_prompt_pipeline(kind(texts, longest, trainer.tokenizer))
    trainer.add_eval_pipeline(kind(texts[:evaluated], longest, trainer.tokenizer))
    trainer.learn()
