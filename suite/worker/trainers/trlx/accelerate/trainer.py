"""trlx's own PPO trainer on Accelerate: DeepSpeed's engine at ZeRO stages 0 to 3, or torch's DDP."""

import inspect
import math
import tempfile
from functools import partial
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM

from suite.worker.asked import prompts_of_groups, score_samples
from suite.worker.deepspeed_json import bucket_elements, engine_of, uses_deepspeed
from suite.worker.loop import TRAIN_STATS
from suite.worker.manifest import asked_iterations
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.trainers import drawn_model
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally, finite
from suite.worker.trainers.on_accelerate import apply_shims, check_engine, check_ranks, set_variables
from suite.worker.trainers.trlx.accelerate.hooks import TimedPPO
from suite.worker.trainers.trlx.config import trlx_config
from suite.worker.trainers.trlx.shims import TRLX_ACCELERATE
from suite.worker.trainers.trlx.source import COMMIT, TESTED_TRANSFORMERS
from suite.worker.trainers.trlx.work import notes, work_differences
from suite.worker.world import World

REGISTERED_NAME = "SuitePPOTrainer"


class TrlxTrainer(Trainer):
    """``AcceleratePPOTrainer`` at one commit, with a drawn model and a tokenizer of numbers instead of a hub's."""

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        self._manifest, self._world = manifest, world
        self.versions = {"trlx": "0.7.0 ({})".format(COMMIT[:8])}
        self._state = IterationState(Tally(manifest, world), self._end_iteration)
        self.trainable_parameters = self.total_parameters = 0
        with tempfile.TemporaryDirectory() as folder:
            self._trainer = self._build(folder)
        check_engine(self._trainer.model, engine_of(manifest), manifest["layout"]["zero_stage"])
        policy = self._models()[0]
        attention = getattr(policy.base_model.config, "_attn_implementation", "eager")
        self.notes += tuple(notes(manifest, attention))
        self.work_differences = tuple(work_differences(manifest))

    def run(self, clock: NullClock, iterations: int) -> None:
        """As ``trlx.train`` goes on after it has built its trainer."""
        from trlx.utils import set_seed
        from trlx.utils.loading import get_pipeline

        manifest, trainer = self._manifest, self._trainer
        self._state.clock = clock
        clock.watch(*(model.base_model for model in self._models()))
        set_seed(manifest["measure"]["seed"])  # whatever building the model drew: equal seeds sample alike
        texts = drawn_model.as_text(prompts_of_groups(manifest, iterations), manifest["size"]["vocab"])
        pipeline = partial(
            get_pipeline(trainer.config.train.pipeline),
            max_prompt_length=manifest["workload"]["prompt_tokens"],
            tokenizer=trainer.tokenizer,
        )
        trainer.add_prompt_pipeline(pipeline(texts))
        trainer.add_eval_pipeline(pipeline(texts[: self._world.world_size]))
        trainer.learn()
        trainer.end_iteration()
        self._state.check_all_ran("trlx", iterations)

    def _models(self) -> List[nn.Module]:
        """trlx's policy, without its wrappers, and its reference where that is a model of its own."""
        trainer = self._trainer
        reference = getattr(trainer, "ref_model", None)
        return [trainer.accelerator.unwrap_model(trainer.model)] + ([] if reference is None else [reference])

    def _build(self, folder: str) -> Any:
        from trlx.data.configs import TRLConfig
        from trlx.trainer import accelerate_ppo_trainer as module
        from trlx.utils import set_seed
        from trlx.utils.loading import get_trainer

        manifest, vocab = self._manifest, self._manifest["size"]["vocab"]
        set_variables(manifest, folder, None)
        self.notes = apply_shims(TRLX_ACCELERATE, manifest, self._world)
        drawn_model.write_tokenizer(folder, vocab)
        iterations = asked_iterations(manifest)
        suppressed = sorted(drawn_model.special_ids(vocab).values())
        config = TRLConfig.from_dict(trlx_config(manifest, iterations, folder, suppressed, REGISTERED_NAME))
        config.train.trainer_kwargs = {"state": self._state}
        _register(module.AcceleratePPOTrainer, self)
        set_seed(config.train.seed)
        trainer = get_trainer(REGISTERED_NAME)(
            config=config, reward_fn=self._reward, metric_fn=None, stop_sequences=[], **config.train.trainer_kwargs
        )
        module.logprobs_of_labels = trainer.timed_logprobs(module.logprobs_of_labels)
        return trainer

    def build_policy(self) -> nn.Module:
        """What trlx's ``get_arch`` is asked for: the policy with its value head, and the reference where it is full."""
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

    def note_policy(self, model: nn.Module, plugin: Any) -> None:
        """Count the policy's parameters once trlx froze what does not train, and bound ZeRO's buckets by them."""
        own = [parameter for name, parameter in model.named_parameters() if not name.startswith("frozen_head.")]
        self.total_parameters, self.trainable_parameters = drawn_model.count_parameters(own)
        if plugin is not None:
            zero = plugin.deepspeed_config["zero_optimization"]
            zero["reduce_bucket_size"] = bucket_elements(self._manifest, self.trainable_parameters)

    def _draw(self, model: nn.Module) -> None:
        drawn_model.draw_weights(model, self._manifest["measure"]["seed"], self._world.device)

    def _reward(self, outputs: List[str], **others: Any) -> List[float]:
        reward = self._manifest["workload"]["reward"]
        responses = torch.empty(len(outputs), 0) if reward["kind"] == "constant" else drawn_model.as_tokens(outputs)
        return score_samples(reward, Samples.even(responses, 0), seed=0).tolist()

    def check_accelerator(self, accelerator: Any) -> None:
        """Raise ConfigError unless Accelerate runs the ranks, the device and the kind of engine that were asked for."""
        check_ranks(accelerator, self._world)
        name, kind = self._manifest["backend"]["name"], accelerator.distributed_type.value
        if (kind == "DEEPSPEED") != uses_deepspeed(self._manifest):
            raise ConfigError("{} was asked for, but Accelerate runs {}".format(name, kind))

    def _end_iteration(self) -> None:
        counts = self._state.tally.counts(self.trainable_parameters, self.total_parameters)
        self._state.clock.finish(counts, self._statistics(counts))

    def _statistics(self, counts: Dict[str, int]) -> Dict[str, Optional[float]]:
        """Means over replicas; the KL divergence from the rewards, which are the score less the KL penalty."""
        state = self._state
        sums = [sum(map(float, state.values[name])) for name in ("scores", "rewards")]
        own = [*sums, *map(state.mean, TRAIN_STATS)]
        totals = torch.tensor(own, dtype=torch.float64, device=self._world.device)
        dist.all_reduce(totals)
        scores, rewards = totals[:2].tolist()
        stats = dict(zip(TRAIN_STATS, (totals[2:] / self._world.world_size).tolist()))
        penalty = self._manifest["workload"]["ppo"]["kl_coefficient"] * counts["response_tokens"]
        stats.update(kl=(scores - rewards) / penalty if penalty else math.nan, reward=scores / counts["samples"])
        return finite(stats)


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


def _register(base: type, owner: TrlxTrainer) -> None:
    from trlx.trainer import register_trainer

    models = iter((owner.build_policy, owner.build_reference))

    @register_trainer(REGISTERED_NAME)
    class SuitePPOTrainer(TimedPPO, base):
        def get_arch(self, config: Any) -> nn.Module:
            """From a configuration; asked once more where the reference is a full copy."""
            return next(models)()

        def setup_model(self) -> nn.Module:
            owner.check_accelerator(self.accelerator)
            model = super().setup_model()
            owner.note_policy(model, self.accelerator.state.deepspeed_plugin)
            return model
