"""trlx's own PPO trainer on Accelerate: DeepSpeed's engine at ZeRO stages 0 to 3, or torch's DDP."""

import inspect
import math
import tempfile
from functools import partial
from typing import Any, Dict, Iterator, List

import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM

from suite.worker.asked import prompts_of_groups, score_samples
from suite.worker.deepspeed_json import bucket_elements, bucket_notes, micro_batches, uses_deepspeed
from suite.worker.loop import TRAIN_STATS
from suite.worker.manifest import asked_iterations
from suite.worker.models import DTYPES
from suite.worker.rank import ConfigError
from suite.worker.samples import Samples
from suite.worker.trainers import drawn_model
from suite.worker.trainers.base import Trainer
from suite.worker.trainers.clock import NullClock
from suite.worker.trainers.iteration import IterationState, Tally, before, finite
from suite.worker.trainers.on_accelerate import check_engine, check_ranks, set_variables, shims_of_deepspeed_on_cpu
from suite.worker.trainers.trlx.accelerate.hooks import TimedPPO
from suite.worker.trainers.trlx.config import learn, trlx_config
from suite.worker.trainers.trlx.source import COMMIT, TESTED_TRANSFORMERS, VERSIONS, shim_without_git
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
        self.notes = tuple(shims(manifest))
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
        draw = partial(drawn_model.draw_weights, seed=self._manifest["measure"]["seed"], device=self._world.device)
        base = build_model(self._manifest["size"])
        draw(base)
        model = Hydra(base, num_layers_unfrozen=self._manifest["workload"]["trainable_layers"] if is_hydra else -1)
        if not is_hydra:
            # With the attribute, trlx would take the model to have a branch, and make no full reference.
            del model.frozen_head
        # trlx makes it in fp32; ZeRO-3 takes one precision only, and the other stages cast it too.
        model.v_head.to(next(base.parameters()).dtype)
        model.forward_kwargs = list(inspect.signature(base.forward).parameters)
        draw(model.v_head)
        return model

    def build_reference(self) -> nn.Module:
        """A whole frozen copy on every rank, in the run's precision under DeepSpeed."""
        try:
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config
        except ImportError:  # where it was before 4.34
            from transformers.deepspeed import unset_hf_deepspeed_config

        unset_hf_deepspeed_config()  # else ZeRO-3 would partition a model that no engine gathers
        model = self.build_policy()
        if uses_deepspeed(self._manifest):
            model.to(DTYPES[self._manifest["measure"]["precision"]])
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
    """As trlx gets one from a folder, in evaluation mode and fp32. Raises ConfigError where transformers before 4.31
    would give each head keys and values of its own."""
    config = drawn_model.model_config(size)
    if size["architecture"] == "gpt2":
        config.activation_function = "gelu_new"  # as its family has it
    if size["kv_heads"] != size["heads"] and not hasattr(type(config)(), "num_key_value_heads"):
        told = "this transformers knows no grouped queries, which {} has; install {}"
        raise ConfigError(told.format(size["name"], TESTED_TRANSFORMERS))
    model = AutoModelForCausalLM.from_config(config).eval()
    model.config.architectures = [type(model).__name__]  # as a saved model says; trlx chooses its branch by it
    return model


def shims(manifest: Dict[str, Any]) -> Iterator[str]:
    """Replace what a run needs in this process, so that trlx's files stay as they are; a note for each."""
    if not uses_deepspeed(manifest):
        from torch.nn.parallel import DistributedDataParallel

        DistributedDataParallel.peft_type = property(lambda wrapper: wrapper.module.peft_type)
        yield (
            "shim ddp-peft-type: trlx asks the model for peft_type: torch's DistributedDataParallel gets a property "
            "that passes it on"
        )
    yield from shims_of_deepspeed_on_cpu(manifest)
    if uses_deepspeed(manifest) and micro_batches(manifest) > 1:
        from trlx.trainer.accelerate_base_trainer import AccelerateRLTrainer

        before(AccelerateRLTrainer, "_accumulate", _tell_boundary)
        yield (
            "shim accumulation-boundary: trlx's _accumulate is wrapped: Accelerate tells DeepSpeed's engine when to "
            "step, which trlx never sets"
        )
    yield from shim_without_git("trlx.trainer.accelerate_base_trainer")


def _tell_boundary(trainer: Any) -> None:
    steps = trainer.accelerator.gradient_accumulation_steps
    trainer.accelerator.gradient_state._set_sync_gradients((trainer.mb_count + 1) % steps == 0)


def work_differences(manifest: Dict[str, Any]) -> Iterator[str]:
    """Where trlx's iteration does other work than the suite's own of the same manifest, one sentence each."""
    workload, work = manifest["workload"], manifest["work"]
    yield "logits, log-probs and values are computed for prompt positions too, in scoring and in training"
    yield "responses are decoded to text and tokenised again, everyone's on the main rank as well"
    if work["replica_rollouts"] > work["micro_batch"]:
        said = "a rank's {} rollouts are scored in one pass, not in micro batches of {}"
        yield said.format(work["replica_rollouts"], work["micro_batch"])
    yield "advantages are computed and whitened in each micro batch, with two all-reduces, not once for all rollouts"
    if workload["reference"] == "hydra" and uses_deepspeed(manifest):
        yield "the hydra reference runs the whole policy once more, then its branch, which has its own output head"
    elif workload["reference"] == "hydra":
        yield "the reference is a full copy, not hydra: trlx does not see its branch behind DDP, and keeps it unused"
    elif manifest["layout"]["zero_stage"] == 3:
        yield "the full reference copy is whole on every rank; the deepspeed backend partitions it"
    size, layers = manifest["size"], workload["trainable_layers"]
    if layers is not None and size["architecture"] != "llama":
        yield "position embeddings train although layers below are frozen, so gradients go through all layers"
    if layers and not size["tied_embeddings"]:
        yield "the output head trains although layers below are frozen"
    if not uses_deepspeed(manifest):
        yield "gradients are not clipped: trlx leaves that to DeepSpeed"
        if manifest["measure"]["precision"] != "fp32":
            yield "weights and gradients stay in fp32 and only the forward pass is cast; the reference computes in fp32"


def notes(manifest: Dict[str, Any], attention: str) -> Iterator[str]:
    """What else a reader must know; ``attention`` as transformers names the implementation it chose."""
    yield "trlx {}, files unchanged: a subclass reports where its phases begin and end".format(COMMIT[:8])
    yield "the subclass replaces get_arch (models from a configuration), evaluate and save_pretrained"
    yield "torch.optim.AdamW as trlx makes it (not fused)"
    yield "transformers' {} attention, and its own GELU for GPT-2 shapes".format(attention)
    yield "torch.compile is off (TORCHDYNAMO_DISABLE): trlx compiles nothing, and DeepSpeed would only load it"
    yield "FLOPs are those of the suite's own iteration: what trlx computes beyond them lowers its utilisation"
    if uses_deepspeed(manifest):
        if manifest["workload"]["reference"] == "full":
            yield "a full reference copy was asked for; by itself, trlx shares the trunk (hydra) under DeepSpeed"
        yield from bucket_notes(manifest)
