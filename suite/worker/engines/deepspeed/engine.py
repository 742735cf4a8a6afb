"""The DeepSpeed engine: a Hugging Face GPT-2 policy, ZeRO over data parallel ranks."""

import importlib
import logging
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Tuple

import deepspeed
import torch
import transformers
from deepspeed.runtime.zero import unwrap_model_for_generation
from transformers import GenerationConfig

from suite.worker.algorithms import build_algorithm
from suite.worker.engines.base import Engine, LossFunction
from suite.worker.engines.deepspeed import config as deepspeed_config
from suite.worker.engines.deepspeed.critic import Critic, joined_losses
from suite.worker.engines.deepspeed.optimizer import build_optimizer, load_kernels
from suite.worker.engines.deepspeed.policy import (
    Policy,
    build_config,
    count_parameters,
    draw_weights,
    freeze_below,
    held_elements,
    recompute_blocks,
)
from suite.worker.samples import Samples, join_responses
from suite.worker.vocabulary import padded_vocab
from suite.worker.world import World

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class DeepSpeedEngine(Engine):
    """Every rank is a replica of its own; ZeRO shards optimizer states, gradients and parameters among them."""

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        """Collective over all ranks. Raises ValueError for what DeepSpeed or Hugging Face's GPT-2 cannot do."""
        deepspeed_config.check(manifest)
        self._manifest = manifest
        self._stage = manifest["layout"]["zero_stage"]
        self._gathers_once = manifest["layout"].get("gather_for_generation", False)
        self._trainable_layers = manifest["workload"]["trainable_layers"]
        self._is_hydra = manifest["workload"]["reference"] == "hydra"
        self._micro_batch = manifest["work"]["micro_batch"]
        self.device = world.device
        self.data_parallel_rank, self.data_parallel_size = world.rank, world.world_size
        self.replica_leader = True
        algorithm = build_algorithm(manifest["workload"])
        trains = not manifest.get("generates_only", False)
        self._uses_values = algorithm.uses_values and trains
        self._uses_reference = algorithm.uses_reference and trains
        _prepare_process(world)
        kernels = load_kernels(manifest)
        policy = self._build_policy()
        self.total_parameters, self.trainable_parameters = count_parameters(policy)
        self._engine = self._wrap(policy) if trains else policy
        self._policy = policy
        self._critic = self._build_critic() if self._manifest["workload"].get("critic") else None
        has_copy = self._uses_reference and not self._is_hydra
        self._reference = self._build_reference() if has_copy else None
        self.models = tuple(model for model in (policy, self._critic, self._reference) if model is not None)
        self._trunk: Optional[Tuple[Samples, torch.Tensor]] = None
        self.notes = (*kernels, *_notes(manifest, world))
        torch.manual_seed(manifest["measure"]["seed"] + world.rank)

    def generate(self, prompts: Samples) -> Samples:
        prompt_tokens, new_tokens = prompts.prompt_lengths[0], prompts.response_lengths[0]
        config = GenerationConfig(
            do_sample=True,
            temperature=self._manifest["workload"]["ppo"]["temperature"],
            top_k=0,
            top_p=1.0,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            use_cache=True,
        )
        self._policy.eval()
        gathers_layers = self._stage == 3 and not self._gathers_once
        with torch.no_grad(), self._whole_weights():
            tokens = self._policy.generate(
                prompts.tokens,
                generation_config=config,
                synced_gpus=gathers_layers and self.data_parallel_size > 1,
            )
        return Samples.even(tokens, prompt_tokens)

    def _whole_weights(self) -> ContextManager[Any]:
        """Where the layout asks for it: ZeRO-3's weights on every rank, without its hooks, partitioned again behind."""
        if not self._gathers_once:
            return nullcontext()
        return unwrap_model_for_generation(self._engine)

    def score(self, samples: Samples) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        self._policy.eval()
        trunk: List[torch.Tensor] = []
        micros = [micro for micro, _ in samples.micro_batches(self._micro_batch)]
        with torch.no_grad(), self._keeping_trunk_states(trunk):
            parts = [self._policy(micro.tokens, prompt_tokens=micro.prompt_lengths[0]) for micro in micros]
            values = [values for _, values in parts]
            if self._critic is not None:
                values = [self._critic(micro.tokens, prompt_tokens=micro.prompt_lengths[0]) for micro in micros]
        if self._is_hydra:
            self._trunk = (samples, torch.cat(trunk))
        logprobs = join_responses([logprobs for logprobs, _ in parts], samples.longest_response)
        return logprobs, join_responses(values, samples.longest_response) if self._uses_values else None

    def reference(self, samples: Samples) -> torch.Tensor:
        micros = [micro for micro, _ in samples.micro_batches(self._micro_batch)]
        with torch.no_grad():
            if self._reference is not None:
                parts = [self._reference(micro.tokens, prompt_tokens=micro.prompt_lengths[0])[0] for micro in micros]
            else:
                assert self._trunk is not None and self._trunk[0] is samples, "score comes before reference"
                states = self._trunk[1].split(self._micro_batch)
                self._trunk = None
                parts = [
                    self._policy(micro.tokens, prompt_tokens=micro.prompt_lengths[0], trunk_states=kept)[0]
                    for micro, kept in zip(micros, states)
                ]
        return join_responses(parts, samples.longest_response)

    def train(self, samples: Samples, batch: Dict[str, torch.Tensor], loss_fn: LossFunction) -> Dict[str, float]:
        self._policy.train()
        rows, steps_before, skipped = len(samples), self._engine.global_steps, self._skipped_steps()
        sums: Dict[str, torch.Tensor] = {}
        for micro, rows_of_batch in samples.micro_batches(self._micro_batch, batch):
            parts = self._train_micro(micro, rows_of_batch, loss_fn)
            for name, value in parts.items():
                sums[name] = sums.get(name, 0) + value
        assert self._engine.global_steps == steps_before + 1, "a batch is one optimizer step"
        means = {name: float(total) * self._micro_batch / rows for name, total in sums.items()}
        norm = self._engine.get_global_grad_norm()
        if norm is not None:
            means["gradient_norm"] = float(norm)
        # Policy and critic have a loss scale each; a step that either skipped is one step not made.
        means["skipped_steps"] = float(max(after - before for before, after in zip(skipped, self._skipped_steps())))
        return means

    def _skipped_steps(self) -> Tuple[int, ...]:
        """Optimizer steps that policy and critic have skipped so far, because a gradient overflowed in fp16."""
        engines = (self._engine,) if self._critic is None else (self._engine, self._critic)
        return tuple(engine.skipped_steps for engine in engines)

    def _train_micro(
        self, samples: Samples, micro: Dict[str, torch.Tensor], loss_fn: LossFunction
    ) -> Dict[str, torch.Tensor]:
        """Forward, backward and step of the policy; then of the critic, where it is a model of its own."""
        prompt_tokens = samples.prompt_lengths[0]
        logprobs, values = self._engine(samples.tokens, prompt_tokens=prompt_tokens)
        loss, parts = loss_fn(logprobs, micro.get("values") if values is None else values, micro)
        self._engine.backward(loss)
        self._engine.step()
        if self._critic is None:
            return parts
        values = self._critic(samples.tokens, prompt_tokens=prompt_tokens)
        loss, critic_parts = loss_fn(micro["logprobs"], values, micro)
        self._critic.backward(loss)
        self._critic.step()
        return joined_losses(parts, critic_parts)

    def _build_policy(self) -> Policy:
        workload = self._manifest["workload"]
        policy = self._build_model(
            hydra_layers=self._trainable_layers if self._is_hydra and self._uses_reference else None,
            with_value_head=self._uses_values and not workload.get("critic"),
            lora_rank=workload.get("lora_rank"),
        )
        freeze_below(policy, self._trainable_layers)
        if self._manifest["layout"]["recompute"] == "full":
            recompute_blocks(policy)
        return policy

    def _build_model(self, **options: Any) -> Policy:
        """Random weights in the run's precision on the device; under ZeRO-3 partitioned as they are made."""
        config = build_config(self._manifest["size"])
        return self._drawn(lambda: Policy(config, **options))

    def _build_critic(self) -> Any:
        """The critic in an engine of its own; its parameters are added to the counts."""
        workload = self._manifest["workload"]
        critic = self._drawn(lambda: Critic(self._manifest["size"], workload["critic"]))
        total, trainable = count_parameters(critic)
        self.total_parameters += total
        self.trainable_parameters += trainable
        return self._wrap(critic)

    def _drawn(self, make: Callable[[], Any]) -> Any:
        with self._construction():
            model = make()
        draw_weights(model, self._manifest["measure"]["seed"], self._gathered)
        return model

    def _wrap(self, model: Any) -> Any:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = build_optimizer(self._manifest, trained)
        config = deepspeed_config.training_config(self._manifest, sum(map(held_elements, trained)))
        return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]

    def _build_reference(self) -> Any:
        """A full frozen copy: under ZeRO-3 partitioned like the policy, else whole on every rank."""
        model = self._build_model(with_value_head=False).requires_grad_(False).eval()
        if self._stage < 3:
            return model
        return deepspeed.initialize(model=model, config=deepspeed_config.inference_config(self._manifest))[0]

    @contextmanager
    def _construction(self) -> Iterator[None]:
        dtype = DTYPES[self._manifest["measure"]["precision"]]
        if self._stage == 3:
            config = deepspeed_config.inference_config(self._manifest)
            with deepspeed.zero.Init(config_dict_or_path=config, dtype=dtype):
                yield
            return
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with self.device:
                yield
        finally:
            torch.set_default_dtype(before)

    def _gathered(self, parameter: torch.nn.Parameter) -> ContextManager[Any]:
        if self._stage < 3:
            return nullcontext()
        return deepspeed.zero.GatheredParameters([parameter], modifier_rank=0)

    @contextmanager
    def _keeping_trunk_states(self, kept: List[torch.Tensor]) -> Iterator[None]:
        """Under hydra, keep what the frozen trunk gives for the reference branch."""
        if not self._is_hydra:
            yield
            return
        module = self._policy.first_trainable(self._trainable_layers)
        hook = module.register_forward_pre_hook(lambda _module, inputs: kept.append(inputs[0]))
        try:
            yield
        finally:
            hook.remove()


def _prepare_process(world: World) -> None:
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if world.device.type == "cpu":
        # Compiled at start (40 s) for a faster all-reduce in shared memory; without it gloo is used.
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)


def _notes(manifest: Dict[str, Any], world: World) -> Iterator[str]:
    layout, stage = manifest["layout"], manifest["layout"]["zero_stage"]
    yield "torch.compile is off (TORCHDYNAMO_DISABLE): torch compiles nothing in this engine"
    precision = manifest["measure"]["precision"]
    rows = padded_vocab(manifest["size"]["vocab"])
    if rows != manifest["size"]["vocab"]:
        yield "vocabulary padded to {} rows: no probability, no gradient, not counted".format(rows)
    if precision != "fp32":
        yield "gradients are accumulated and reduced in {} (DeepSpeed's default)".format(precision)
    if deepspeed_config.overlaps(manifest):
        yield "gradients are reduced while backward still runs (overlap_comm, as DeepSpeed-Chat sets it)"
    if getattr(Policy, "_supports_sdpa", False):
        yield "attention: PyTorch's scaled dot-product attention"
    else:
        yield "eager attention: transformers {} has no SDPA for GPT-2".format(transformers.__version__)
    yield "logits are computed for response positions only; log-probs in fp32"
    yield "generation: one batch per replica, Hugging Face generate with a dynamic key-value cache"
    if not build_algorithm(manifest["workload"]).uses_reference:
        yield "no reference policy: the algorithm asks it for nothing"
    elif manifest["workload"]["reference"] == "hydra":
        yield "hydra reference: the trunk's states are kept from the score phase; the frozen output head is shared"
    elif stage == 3:
        yield "the full reference copy is partitioned by ZeRO-3, as DeepSpeed-Chat does"
    else:
        yield "the full reference copy is whole on every rank"
    if stage:
        yield "ZeRO reduction bucket at most as large as the trainable parameters (DeepSpeed's default: 5e8 elements)"
    if layout.get("gather_for_generation"):
        yield "generation under ZeRO-3 gathers all weights once (DeepSpeed's unwrap_model_for_generation, as under TRL)"
    elif stage == 3:
        yield "generation under ZeRO-3 gathers every layer's weights anew for each token (no hybrid engine for GPT-2)"
    if stage == 3:
        yield "ZeRO-3 keeps parameters below 1e5 elements whole (DeepSpeed's default persistence threshold)"
    if manifest["workload"].get("lora_rank") or manifest["workload"].get("critic"):
        yield from _chat_notes(manifest["workload"])
    if world.device.type == "cpu":
        yield "CPU patch: DeepSpeed's shared-memory all-reduce is not compiled; gloo is used"


def _chat_notes(workload: Dict[str, Any]) -> Iterator[str]:
    """How far a workload with adapters or a critic goes as in DeepSpeed-Chat."""
    yield "no hybrid engine: DeepSpeed has none for GPT-2 style models; generation runs on the training weights"
    if workload.get("lora_rank"):
        yield "LoRA adapters stay unfused in generation; query, key and value have one each on their joint matrix"
        yield "biases, LayerNorms and embeddings train beside the adapters, as in DeepSpeed-Chat's scripts"
    if workload.get("critic"):
        yield "critic: a GPT-2 trunk of its own shape on the policy's vocabulary, never recomputed, in its own engine"
        yield "gradient norm is the policy's; policy and critic are clipped apart"
