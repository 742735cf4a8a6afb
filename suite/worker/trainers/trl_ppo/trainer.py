"""TRL's PPO trainer, the last there was, with drawn models and a reward that costs nothing."""

import tempfile
from contextlib import ExitStack
from typing import Any, Dict, Iterator

import torch
from torch import nn

from suite.worker.asked import prompts_of_groups
from suite.worker.deepspeed_json import bucket_notes, uses_deepspeed
from suite.worker.hugging_face import training_arguments
from suite.worker.manifest import asked_iterations, installed_version
from suite.worker.trainers import drawn_model
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally, finite
from suite.worker.trainers.on_accelerate import (
    check_engine,
    check_ranks,
    set_variables,
    shims_of_deepspeed_on_cpu,
)
from suite.worker.trainers.trl_ppo.hooks import LOGGED, Scores, time_functions, time_methods
from suite.worker.world import World


class TrlPpo(Trainer):
    """``PPOTrainer`` of ``trl.experimental.ppo``: policy, value model and reference, each a model of its own."""

    unscored = True
    imports = ("trl.experimental.ppo.ppo_trainer",)

    @classmethod
    def load(cls, manifest: Dict[str, Any]) -> None:
        cls.import_all(manifest["measure"]["device"])

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        self._manifest, self._world = manifest, world
        shims = tuple(shims_of_deepspeed_on_cpu(manifest))
        self._state = IterationState(Tally(manifest, world), self._end_iteration)
        self._trainer = self._build()
        check_ranks(self._trainer.accelerator, world)
        check_engine(self._trainer.model, manifest)
        self.notes = (*shims, *notes(manifest))
        self.work_differences = tuple(work_differences(manifest))

    def run(self, clock: NullClock, iterations: int) -> None:
        state, trainer = self._state, self._trainer
        state.clock = clock
        policy = trainer.accelerator.unwrap_model(trainer.model)
        clock.watch(policy.policy, policy.value_model, trainer.ref_model)
        trainer.train()
        state.end()
        state.check_all_ran("TRL", iterations)

    def _build(self) -> Any:
        from datasets import Dataset
        from transformers import set_seed
        from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

        manifest, seed, device = self._manifest, self._manifest["measure"]["seed"], self._world.device
        iterations, folder = asked_iterations(manifest), tempfile.mkdtemp()
        with torch.device("meta"):
            bare = drawn_model.build_model(manifest["size"]), self._bare_value_model()
        self._parameters = sum(drawn_model.count_parameters(model.parameters())[1] for model in bare)
        set_variables(manifest, folder, self._parameters)
        arguments = PPOConfig(**ppo_config(manifest, iterations, folder))
        set_seed(seed)  # NumPy's too, which shuffles; TRL itself sets torch's alone
        policy, reference = (drawn_model.draw_model(manifest["size"], seed, device) for _ in range(2))
        value = self._bare_value_model()
        drawn_model.draw_weights(value, seed, device)
        # one number a token, and padding by an id of its own behind them: no sampled token is taken for padding
        tokenizer = drawn_model.build_tokenizer(manifest["size"]["vocab"])
        tokenizer.add_special_tokens({"pad_token": "<padding>"})
        # TRL's batches are dealt one ahead, and at the last one Accelerate would step after every micro batch
        prompts = prompts_of_groups(manifest, iterations + 1).tolist()
        trainer = PPOTrainer(
            args=arguments,
            processing_class=tokenizer,
            model=policy,
            ref_model=reference.requires_grad_(False).eval(),
            reward_model=Scores(manifest, self._world.rank, lambda: self._state.iteration),
            value_model=value,
            train_dataset=Dataset.from_dict({"input_ids": prompts}),
        )
        forward_pass = ExitStack()
        time_functions(ppo_trainer, trainer, self._state, forward_pass)
        time_methods(trainer, self._state, forward_pass)
        return trainer

    def _bare_value_model(self) -> nn.Module:
        """The policy's shape, or the manifest's critic: a trunk and one linear layer without bias."""
        from transformers import AutoModelForSequenceClassification

        config = drawn_model.model_config(drawn_model.critic_size(self._manifest))
        config.num_labels = 1
        return AutoModelForSequenceClassification.from_config(config)

    def _end_iteration(self) -> None:
        """Statistics are TRL's, averaged over ranks already; the KL divergence is per token here, per sample there.

        TRL averages losses over as many places as all mini batches have micro batches, of which each fills its part.
        """
        state, workload = self._state, self._manifest["workload"]
        stats = {name: state.logged[key] for name, key in LOGGED.items()}
        for name in ("policy_loss", "value_loss"):
            stats[name] *= workload["optimizer_steps"]
        stats["kl"] /= workload["new_tokens"]
        stats["loss"] = stats["policy_loss"] + workload["ppo"]["value_coefficient"] * stats["value_loss"]
        stats["gradient_norm"] = state.mean("gradient_norm")
        state.clock.finish(state.tally.counts(self._parameters, self._parameters), finite(stats))


def ppo_config(manifest: Dict[str, Any], iterations: int, folder: str) -> Dict[str, Any]:
    """What ``PPOConfig`` takes. One of its updates is an iteration: generation, scores, all optimizer steps.

    Precision and the micro batches of a step are Accelerate's to know (``accelerate_variables``).
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


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where TRL's iteration does other work than the suite's own of the same manifest, one sentence each."""
    workload, work, layout = (manifest[name] for name in ("workload", "work", "layout"))
    if workload.get("critic") is None:
        yield "values come from a second model of the policy's shape, trained and counted too, not from a value head"
    yield "the policy has no scoring pass: its log-probs come from generation's logits, which are kept for all samples"
    yield "every pass of policy, reference and value model gives all hidden states; logits are of prompt positions too"
    if work["replica_rollouts"] > work["micro_batch"]:
        said = "a rank's {} rollouts go through value model and reference in one pass, not in micro batches of {}"
        yield said.format(work["replica_rollouts"], work["micro_batch"])
    yield "values of prompt positions are computed too, in score and in train"
    yield "rewards are given on every rank for its own samples, not on the main one for all"
    if layout["data"] > 1:
        yield "advantages are whitened over a rank's own samples, not over all of them"
    yield "entropy and other statistics are computed in every micro batch and gathered one by one at the end"
    yield "Python's garbage is collected twice in every iteration"
    if not uses_deepspeed(manifest):
        yield "gradients are not clipped: TRL's PPO leaves that to DeepSpeed"
        if manifest["measure"]["precision"] != "fp32":
            yield "weights and gradients stay in fp32 and only the forward pass is cast; the reference computes in fp32"
    elif layout["zero_stage"] < 3:
        yield "the full reference copy is whole on every rank, in an engine of its own"


def notes(manifest: Dict[str, Any]) -> Iterator[str]:
    said = "TRL {}, files unchanged: what its train calls is wrapped in the process and reports its phase edges"
    yield said.format(installed_version("trl"))
    if manifest["workload"]["optimizer_steps"] > 1:
        yield "Accelerate's variable for gradient accumulation has it step after each mini batch, and not once an epoch"
    yield "transformers' sdpa attention; torch's fused AdamW as transformers makes it"
    yield "torch.compile is off (TORCHDYNAMO_DISABLE): TRL compiles nothing, and DeepSpeed would only load it"
    yield "FLOPs are those of the suite's own iteration: what TRL computes beyond them lowers its utilisation"
    yield from bucket_notes(manifest)
