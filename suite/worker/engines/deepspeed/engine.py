"""The DeepSpeed engine: a Hugging Face policy, ZeRO over data parallel ranks."""

import importlib
import logging
from contextlib import nullcontext
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import deepspeed
import torch
from deepspeed.runtime.zero import unwrap_model_for_generation

from suite.worker.algorithms import build_algorithm
from suite.worker.deepspeed_json import bucket_notes, inference_config, overlaps, training_config
from suite.worker.engines.base import WITHOUT_CUDNN, Engine, LossFunction, without_cudnn
from suite.worker.engines.deepspeed.families import FAMILIES, class_of
from suite.worker.engines.deepspeed.generation import generate
from suite.worker.engines.deepspeed.optimizer import build_optimizer, load_kernels
from suite.worker.engines.deepspeed.policy import Critic, critic_config, freeze_below, keep_rotary_exact, policy_builder
from suite.worker.engines.deepspeed.rows import TrunkRows, attention_kernel
from suite.worker.engines.deepspeed.weights import count_parameters, draw_weights, plain_weights
from suite.worker.hugging_face import head_width
from suite.worker.models import DTYPES, padded_vocab
from suite.worker.partitioned import whole_elements
from suite.worker.samples import Samples, Tensors, join_responses
from suite.worker.world import World


class DeepSpeedEngine(Engine):
    """Every rank is a replica of its own; ZeRO shards optimizer states, gradients and parameters among them."""

    @classmethod
    def load(cls, manifest: Dict[str, Any]) -> None:
        super().load(manifest)
        class_of(manifest["size"]["architecture"])

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        self._manifest = manifest
        self._stage = manifest["layout"]["zero_stage"]
        self._trainable_layers = manifest["workload"]["trainable_layers"]
        self._micro_batch = manifest["work"]["micro_batch"]
        self._packs = manifest["layout"].get("packing", False)
        self.device = world.device
        self.data_parallel_rank, self.data_parallel_size = world.rank, world.world_size
        self.replica_leader = True
        algorithm = build_algorithm(manifest["workload"])
        trains = not manifest.get("generates_only", False)
        self._uses_values = algorithm.uses_values and trains
        self._uses_reference = algorithm.uses_reference and trains
        self._is_hydra = self._uses_reference and manifest["workload"]["reference"] == "hydra"
        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
        if world.device.type == "cpu":
            # Compiled at start (40 s) for a faster all-reduce in shared memory; without it gloo is used.
            importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
        deepspeed.init_distributed(auto_mpi_discovery=False, verbose=False)
        kernels = load_kernels(manifest)
        policy = self._build_policy()
        self.total_parameters, self.trainable_parameters = count_parameters(policy)
        self._engine = self._wrap(policy) if trains else policy
        self._policy = policy
        self._critic = self._build_critic() if manifest["workload"].get("critic") else None
        self._reference = self._build_reference() if self._uses_reference and not self._is_hydra else None
        self.models = tuple(model for model in (policy, self._critic, self._reference) if model is not None)
        self._trunk: Optional[Tuple[Samples, List[torch.Tensor]]] = None
        self.notes = (*kernels, *_notes(manifest, world, algorithm.uses_reference))
        torch.manual_seed(manifest["measure"]["seed"] + world.rank)

    def generate(self, prompts: Samples) -> Samples:
        self._policy.eval()
        gathers_once = self._manifest["layout"].get("gather_for_generation", False)
        synced = self._stage == 3 and not gathers_once and self.data_parallel_size > 1
        temperature = self._manifest["workload"]["ppo"]["temperature"]
        # ZeRO-3's weights on every rank, without its hooks; they are partitioned again behind
        whole = unwrap_model_for_generation(self._engine) if gathers_once else nullcontext()
        with torch.no_grad(), whole, without_cudnn():
            samples, self.finish_seconds = generate(self._policy, prompts, temperature, synced)
        return samples

    def weights(self) -> Iterator[Tuple[str, torch.Tensor]]:
        return plain_weights(self._policy)

    def score(self, samples: Samples) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        self._policy.eval()
        trunk: List[torch.Tensor] = []
        micros = self._rows(samples)
        keeps: Any = nullcontext()
        if self._is_hydra:  # what the frozen trunk gives is kept for the reference branch
            module = self._policy.first_trainable(self._trainable_layers)
            keeps = module.register_forward_pre_hook(lambda _module, inputs: trunk.append(inputs[0]))
        with torch.no_grad(), keeps:
            parts = [self._policy(rows=micro) for micro in micros]
            values = [values for _, values in parts]
            if self._critic is not None:
                values = [self._critic(rows=micro) for micro in micros]
        if self._is_hydra:
            self._trunk = (samples, trunk)
        logprobs = join_responses([logprobs for logprobs, _ in parts], samples.longest_response)
        return logprobs, join_responses(values, samples.longest_response) if self._uses_values else None

    def reference(self, samples: Samples) -> torch.Tensor:
        micros = self._rows(samples)
        with torch.no_grad():
            if self._reference is not None:
                parts = [self._reference(rows=micro)[0] for micro in micros]
            else:
                assert self._trunk is not None and self._trunk[0] is samples, "score comes before reference"
                trunk, self._trunk = self._trunk[1], None
                parts = [self._policy(rows=micro, trunk_states=kept)[0] for micro, kept in zip(micros, trunk)]
        return join_responses(parts, samples.longest_response)

    def train(self, samples: Samples, batch: Dict[str, torch.Tensor], loss_fn: LossFunction) -> Dict[str, float]:
        self._policy.train()
        rows, steps_before, skipped = len(samples), self._engine.global_steps, self._skipped_steps()
        sums: Dict[str, torch.Tensor] = {}
        micros = self._rows(samples)
        for micro, (_, micro_batch) in zip(micros, samples.micro_batches(self._micro_batch, batch)):
            parts = self._train_micro(micro, micro_batch, loss_fn)
            for name, value in parts.items():
                sums[name] = sums.get(name, 0) + value
        assert self._engine.global_steps == steps_before + 1, "a batch is one optimizer step"
        means = {name: float(total) * self._micro_batch / rows for name, total in sums.items()}
        norm = self._engine.get_global_grad_norm()
        if norm is not None:
            means["gradient_norm"] = float(norm)
        # Policy and critic have a loss scale each; a step that either skipped is one step not made.
        means["skipped_steps"] = float(max(after - before for before, after in zip(skipped, self._skipped_steps())))
        means["padded_tokens"] = float(sum(micro.tokens.numel() for micro in micros) - samples.real_tokens)
        return means

    def _rows(self, samples: Samples) -> List[TrunkRows]:
        """Of all micro batches, before the first of them keeps the device busy."""
        return [TrunkRows(micro, self._packs) for micro, _ in samples.micro_batches(self._micro_batch)]

    def _skipped_steps(self) -> Tuple[int, ...]:
        """Optimizer steps that policy and critic have skipped so far, because a gradient overflowed in fp16."""
        engines = (self._engine,) if self._critic is None else (self._engine, self._critic)
        return tuple(engine.skipped_steps for engine in engines)

    def _train_micro(self, rows: TrunkRows, micro: Tensors, loss_fn: LossFunction) -> Tensors:
        """Forward, backward and step of the policy; then of the critic, where it is a model of its own."""
        logprobs, values = self._engine(rows=rows)
        loss, parts = loss_fn(logprobs, micro.get("values") if values is None else values, micro)
        self._engine.backward(loss)
        self._engine.step()
        if self._critic is None:
            return parts
        values = self._critic(rows=rows)
        loss, critic_parts = loss_fn(micro["logprobs"], values, micro)
        self._critic.backward(loss)
        self._critic.step()
        # each of the two passes held the other's part constant
        whole_loss = parts["policy_loss"] + critic_parts["loss"] - critic_parts["policy_loss"]
        return {**critic_parts, "loss": whole_loss, "policy_loss": parts["policy_loss"]}

    def _build_policy(self) -> Any:
        workload = self._manifest["workload"]
        make = policy_builder(
            self._manifest["size"],
            self._packs,
            hydra_layers=self._trainable_layers if self._is_hydra else None,
            with_value_head=self._uses_values and not workload.get("critic"),
            lora_rank=workload.get("lora_rank") or 0,
        )
        policy = self._drawn(make)
        freeze_below(policy, self._trainable_layers)
        if self._manifest["layout"]["recompute"] == "full":
            policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return policy

    def _build_critic(self) -> Any:
        workload = self._manifest["workload"]
        config = critic_config(self._manifest["size"], workload["critic"], self._packs)
        critic = self._drawn(partial(Critic, config))
        total, trainable = count_parameters(critic)
        self.total_parameters += total
        self.trainable_parameters += trainable
        return self._wrap(critic)

    def _drawn(self, make: Callable[[], Any]) -> Any:
        """Random weights in the run's precision on the device; under ZeRO-3 partitioned as they are made."""
        if self._stage == 3:
            # Without a dtype of its own: of one that is given, DeepSpeed makes bf16 where it has no fp16, as on a CPU.
            with deepspeed.zero.Init(config_dict_or_path=inference_config(self._manifest)):
                model = make()
        else:
            before = torch.get_default_dtype()
            torch.set_default_dtype(DTYPES[self._manifest["measure"]["precision"]])
            with self.device:
                model = make()
            torch.set_default_dtype(before)
        draw_weights(model, self._manifest["measure"]["seed"])
        return model

    def _wrap(self, model: Any) -> Any:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = build_optimizer(self._manifest, trained)
        config = training_config(self._manifest, sum(map(whole_elements, trained)))
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
        keep_rotary_exact(model)
        return engine

    def _build_reference(self) -> Any:
        """A full frozen copy: under ZeRO-3 partitioned like the policy, else whole on every rank."""
        make = policy_builder(self._manifest["size"], self._packs, with_value_head=False)
        model = self._drawn(make).requires_grad_(False).eval()
        engine = model
        if self._stage == 3:
            engine = deepspeed.initialize(model=model, config=inference_config(self._manifest))[0]
        keep_rotary_exact(model)
        return engine


def _notes(manifest: Dict[str, Any], world: World, uses_reference: bool) -> Iterator[str]:
    size, layout, workload = manifest["size"], manifest["layout"], manifest["workload"]
    precision, stage, rows = manifest["measure"]["precision"], layout["zero_stage"], padded_vocab(size["vocab"])
    generates, gathers = layout.get("generation", "hf") == "hf", layout.get("gather_for_generation")
    adapters, critic = workload.get("lora_rank"), workload.get("critic")
    kernel = attention_kernel(world.device, DTYPES[precision], head_width(size))
    told = [
        "torch.compile is off (TORCHDYNAMO_DISABLE): torch compiles nothing in this engine",
        rows != size["vocab"] and "vocabulary padded to {} rows: no probability, no gradient, not counted".format(rows),
        precision != "fp32" and "gradients are accumulated and reduced in {} (DeepSpeed's default)".format(precision),
        overlaps(manifest) and "gradients are reduced while backward still runs (overlap_comm, as in DeepSpeed-Chat)",
        "attention: PyTorch's scaled dot-product attention",
        layout.get("packing") and "packed rows, a micro batch's samples end to end, in all but generation: " + kernel,
        FAMILIES[size["architecture"]].rotary and "rotary frequencies are kept in fp32 (DeepSpeed would convert them)",
        "logits are computed for response positions only; log-probs in fp32",
        generates and "generation: one batch per replica, Hugging Face generate with a dynamic key-value cache",
        generates and world.device.type == "cuda" and WITHOUT_CUDNN,
        generates and workload.get("prompt_lengths") and "generation: prompts are padded in front, with a mask",
        generates and workload.get("lengths") and "generation: a sample stays in the batch until the longest ends",
        generates and gathers and "generation under ZeRO-3 gathers all weights once (unwrap_model_for_generation)",
        generates
        and stage == 3
        and not gathers
        and "generation under ZeRO-3 gathers each layer's weights for each token",
        stage == 3 and "ZeRO-3 keeps parameters below 1e5 elements whole (DeepSpeed's default persistence threshold)",
        (adapters or critic) and "no hybrid engine: DeepSpeed has none for these models, which generate as they train",
        adapters and "LoRA adapters stay unfused in generation; query, key and value have one each, on a joint matrix",
        adapters and "biases, norms and embeddings train beside the adapters, as in DeepSpeed-Chat's scripts",
        critic
        and "critic: a GPT-2 trunk of its own shape on the policy's vocabulary, in its own engine, not recomputed",
        critic and "gradient norm is the policy's; policy and critic are clipped apart",
        world.device.type == "cpu" and "CPU patch: DeepSpeed's shared-memory all-reduce is not compiled; gloo is used",
    ]
    yield from filter(None, told)
    yield from bucket_notes(manifest)
    if not uses_reference:
        yield "no reference policy: the algorithm asks it for nothing"
    elif workload["reference"] == "hydra":
        yield "hydra reference: the trunk's states are kept from the score phase; the frozen output head is shared"
    else:
        where = "partitioned by ZeRO-3, as in DeepSpeed-Chat" if stage == 3 else "whole on every rank"
        yield "the full reference copy is {}".format(where)
