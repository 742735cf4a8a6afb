"""trlx's own PPO trainer on Accelerate: DeepSpeed's engine at ZeRO stages 0 to 3, or torch's DDP."""

import inspect
import math
import tempfile
from typing import Any, Dict, List

import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM

from suite.worker.asked import prompts_of_groups, score_samples
from suite.worker.deepspeed_json import bucket_elements, uses_deepspeed
from suite.worker.loop import TRAIN_STATS
from suite.worker.manifest import asked_iterations
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.trainers import drawn_model
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally, finite
from suite.worker.trainers.on_accelerate import check_engine, check_ranks, set_variables
from suite.worker.trainers.trlx.accelerate.hooks import TimedPPO
from suite.worker.trainers.trlx.config import learn, trlx_config
from suite.worker.trainers.trlx.shims import shims_on_accelerate
from suite.worker.trainers.trlx.source import TESTED_TRANSFORMERS, VERSIONS
from suite.worker.trainers.trlx.work import notes, work_differences
from suite.worker.world import World


class TrlxTrainer(Trainer):
    """``AcceleratePPOTrainer`` at one commit, with a drawn model and a tokenizer of numbers instead of a hub's."""

    versions = VERSIONS

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        self._manifest, self._world = manifest, world
        self.state = IterationState(Tally(manifest, world), self._end_iteration)
        with tempfile.TemporaryDirectory() as folder:
            self._trainer = self._build(folder)
        check_engine(self._trainer.model, manifest)
        self._policy = self._trainer.accelerator.unwrap_model(self._trainer.model)
        attention = getattr(self._policy.base_model.config, "_attn_implementation", "eager")
        self.notes += tuple(notes(manifest, attention))
        self.work_differences = tuple(work_differences(manifest))

    def run(self, clock: NullClock, iterations: int) -> None:
        from trlx.utils import set_seed

        manifest, trainer = self._manifest, self._trainer
        self.state.clock = clock
        models = [self._policy, *([trainer.ref_model] if hasattr(trainer, "ref_model") else [])]
        clock.watch(*(model.base_model for model in models))
        set_seed(manifest["measure"]["seed"])  # whatever building the model drew: equal seeds sample alike
        texts = drawn_model.as_text(prompts_of_groups(manifest, iterations), manifest["size"]["vocab"])
        learn(trainer, manifest, texts, self._world.world_size)
        trainer.end_iteration()
        self.state.check_all_ran("trlx", iterations)

    def _build(self, folder: str) -> Any:
        from trlx.data.configs import TRLConfig
        from trlx.trainer import accelerate_ppo_trainer as module
        from trlx.utils import set_seed

        manifest, vocab = self._manifest, self._manifest["size"]["vocab"]
        set_variables(manifest, folder, None)
        self.notes = tuple(shims_on_accelerate(manifest))
        drawn_model.write_tokenizer(folder, vocab)
        suppressed = sorted(drawn_model.special_ids(vocab).values())
        config = TRLConfig.from_dict(trlx_config(manifest, asked_iterations(manifest), folder, suppressed))
        set_seed(config.train.seed)
        kind = type("SuitePPOTrainer", (TimedPPO, module.AcceleratePPOTrainer), {})
        trainer = kind(config=config, owner=self, reward_fn=self._reward, metric_fn=None, stop_sequences=[])
        # lines 445 and 446: the policy's, then the reference's; in the loss it is part of the forward pass
        pieces = ("score", False), ("reference", False)
        module.logprobs_of_labels = self.state.in_turn(module.logprobs_of_labels, *pieces)
        return trainer

    def build_policy(self) -> nn.Module:
        """The policy with its value head."""
        from trlx.models.modeling_ppo import AutoModelForCausalLMWithHydraValueHead as Hydra

        is_hydra = self._manifest["workload"]["reference"] == "hydra"
        base = build_model(self._manifest["size"])
        self._draw(base)
        model = Hydra(base, num_layers_unfrozen=self._manifest["workload"]["trainable_layers"] if is_hydra else -1)
        if not is_hydra:
            # With the attribute, trlx would take the model to have a branch, and make no full reference.
            del model.frozen_head
        # trlx makes it in fp32; ZeRO-3 takes one precision only, and the other stages cast it too.
        model.v_head.to(next(base.parameters()).dtype)
        model.forward_kwargs = list(inspect.signature(base.forward).parameters)
        self._draw(model.v_head)
        return model

    def build_reference(self) -> nn.Module:
        """A whole frozen copy on every rank, in the run's precision under DeepSpeed."""
        try:
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config
        except ImportError:  # where it was before 4.34
            from transformers.deepspeed import unset_hf_deepspeed_config

        unset_hf_deepspeed_config()  # else ZeRO-3 would partition a model that no engine gathers
        model = self.build_policy()
        precision = self._manifest["measure"]["precision"]
        if uses_deepspeed(self._manifest) and precision != "fp32":
            model.to(torch.bfloat16 if precision == "bf16" else torch.float16)
        return model.requires_grad_(False)

    def accept(self, accelerator: Any, model: nn.Module) -> None:
        """Count the policy's parameters once trlx froze what does not train, and bound ZeRO's buckets by them.

        Raises ConfigError unless Accelerate runs the ranks, the device and the kind of engine that were asked for.
        """
        check_ranks(accelerator, self._world)
        is_deepspeed, kind = uses_deepspeed(self._manifest), accelerator.distributed_type.value
        if (kind == "DEEPSPEED") != is_deepspeed:
            name = self._manifest["backend"]["name"]
            raise ConfigError("{} was asked for, but Accelerate runs {}".format(name, kind))
        own = [parameter for name, parameter in model.named_parameters() if not name.startswith("frozen_head.")]
        self.total_parameters, self.trainable_parameters = drawn_model.count_parameters(own)
        if is_deepspeed:
            zero = accelerator.state.deepspeed_plugin.deepspeed_config["zero_optimization"]
            zero["reduce_bucket_size"] = bucket_elements(self._manifest, self.trainable_parameters)

    def _draw(self, model: nn.Module) -> None:
        drawn_model.draw_weights(model, self._manifest["measure"]["seed"], self._world.device)

    def _reward(self, outputs: List[str], **others: Any) -> List[float]:
        reward = self._manifest["workload"]["reward"]
        responses = torch.empty(len(outputs), 0) if reward["kind"] == "constant" else drawn_model.as_tokens(outputs)
        return score_samples(reward, Samples.even(responses, 0), seed=0).tolist()

    def _end_iteration(self) -> None:
        """Statistics are means over replicas; the KL divergence is from the rewards: the scores less the penalty."""
        state = self.state
        counts = state.tally.counts(self.trainable_parameters, self.total_parameters)
        sums = [sum(map(float, state.values[name])) for name in ("scores", "rewards")]
        own = [*sums, *map(state.mean, TRAIN_STATS)]
        totals = torch.tensor(own, dtype=torch.float64, device=self._world.device)
        dist.all_reduce(totals)
        scores, rewards = totals[:2].tolist()
        stats = dict(zip(TRAIN_STATS, (totals[2:] / self._world.world_size).tolist()))
        penalty = self._manifest["workload"]["ppo"]["kl_coefficient"] * counts["response_tokens"]
        stats.update(kl=(scores - rewards) / penalty if penalty else math.nan, reward=scores / counts["samples"])
        state.clock.finish(counts, finite(stats))


def build_model(size: Dict[str, Any]) -> Any:
    """A causal language model in fp32 that is in evaluation mode, as trlx gets one from a folder; undrawn weights.

    Raises ConfigError where transformers before 4.31 would give each head keys and values of its own.
    """
    config = drawn_model.model_config(size)
    if size["architecture"] == "gpt2":
        config.activation_function = "gelu_new"  # as its family has it
    if size["kv_heads"] != size["heads"] and not hasattr(type(config)(), "num_key_value_heads"):
        raise ConfigError(
            "this transformers knows no grouped queries, which {} has; install {}".format(
                size["name"], TESTED_TRANSFORMERS
            )
        )
    model = AutoModelForCausalLM.from_config(config).eval()
    model.config.architectures = [type(model).__name__]  # as a saved model says; trlx chooses its branch by it
    return model
