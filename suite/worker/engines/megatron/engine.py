"""The Megatron-Core engine: tensor, pipeline, sequence and data parallel ranks of one policy."""

import copy
import math
import os
import zlib
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from suite.worker.algorithms import build_algorithm
from suite.worker.engines.base import WITHOUT_CUDNN, Engine, LossFunction, without_cudnn
from suite.worker.engines.megatron import native, stack
from suite.worker.engines.megatron.batch import MicroBatch
from suite.worker.engines.megatron.cpu import CPU_PATCHES, apply_cpu_patches
from suite.worker.engines.megatron.export import Exporter
from suite.worker.engines.megatron.generate import Sampler
from suite.worker.engines.megatron.model import PolicyModel, build_config, is_rotary
from suite.worker.engines.megatron.optimizer import build_optimizer, kernels, wrap_for_training
from suite.worker.engines.megatron.stack import COMPILED, P2PCommunicator, ProcessGroupCollection, parallel_state
from suite.worker.engines.megatron.weights import count_parameters, draw_weights, freeze_below
from suite.worker.samples import Samples, Tensors, join_responses
from suite.worker.world import World


class MegatronEngine(Engine):
    """Policy, reference and optimizer on Megatron-Core's local layers, or on Transformer Engine's (native kernels)."""

    def __init__(self, manifest: Dict[str, Any], world: World) -> None:
        """Collective over all ranks. Raises ValueError where native kernels cannot run in this process."""
        layout, seed = manifest["layout"], manifest["measure"]["seed"]
        if layout.get("kernels") == "native":
            native.require()
        self.device = world.device
        if world.device.type == "cpu":
            apply_cpu_patches()
        self.notes = tuple(_notes(manifest, world))
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=layout["tensor"],
            pipeline_model_parallel_size=layout["pipeline"],
            expert_model_parallel_size=layout.get("expert", 1),
            create_gloo_process_groups=False,
            distributed_timeout_minutes=max(1, math.ceil(manifest["limits"]["silence_seconds"] / 60)),
        )
        # Dropout is 0 and weights are drawn by name: Megatron need not switch generator states in every layer.
        stack.tensor_parallel.model_parallel_cuda_manual_seed(seed, inference_rng_tracker=True, force_reset_rng=True)
        self.data_parallel_rank = parallel_state.get_data_parallel_rank()
        self.data_parallel_size = parallel_state.get_data_parallel_world_size()
        self._is_last_stage = parallel_state.is_pipeline_last_stage()
        self._from_last_stage = {
            "src": parallel_state.get_pipeline_model_parallel_last_rank(),
            "group": parallel_state.get_pipeline_model_parallel_group(),
        }
        self._micro_batch = manifest["work"]["micro_batch"]
        self._size = manifest["size"]
        self._exporter: Optional[Exporter] = None
        self._packing = layout.get("packing", False)
        self._length_multiple = layout["tensor"] if layout["sequence_parallel"] else 1
        self._build_models(manifest)
        sampling_seed = zlib.crc32("{}:sampling:{}".format(seed, self.data_parallel_rank).encode())
        self._sampler = Sampler(self._model, manifest["workload"]["ppo"]["temperature"], sampling_seed)
        self.replica_leader = self._sampler.is_leader

    def _build_models(self, manifest: Dict[str, Any]) -> None:
        algorithm = build_algorithm(manifest["workload"])
        generates_only = manifest.get("generates_only", False)
        self._uses_values = algorithm.uses_values and not generates_only
        self._model = self._build_model(manifest, self._uses_values)
        freeze_below(self._model, manifest["workload"]["trainable_layers"])
        self.total_parameters, self.trainable_parameters = count_parameters(self._model)
        self.models = (self._model,)
        if generates_only:
            self._policy = _in_precision(self._model)
            return
        self._policy = wrap_for_training(_in_precision(self._model), manifest["layout"], self.device)
        self._optimizer = build_optimizer(self._policy, manifest)
        self.notes += ("optimizer: {}".format(", ".join(kernels(self._optimizer))),)
        if algorithm.uses_reference:
            reference = self._build_model(manifest, with_value_head=False)
            self._reference = _in_precision(reference.requires_grad_(False)).eval()
            self.models += (reference,)

    def _build_model(self, manifest: Dict[str, Any], with_value_head: bool) -> PolicyModel:
        config = build_config(manifest, self.device)
        model = PolicyModel(config, manifest["size"], with_value_head).to(self.device)
        draw_weights(model, manifest["measure"]["seed"])
        return model

    def weights(self) -> Iterator[Tuple[str, torch.Tensor]]:
        if self._exporter is None:
            self._exporter = Exporter(self._model, self._size)
        return self._exporter.weights()

    def generate(self, prompts: Samples) -> Samples:
        self._policy.eval()
        with without_cudnn():
            samples, self.finish_seconds = self._sampler.sample(prompts)
        return samples

    def score(self, samples: Samples) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        self._policy.eval()
        results = self._evaluate(self._policy, samples, num_results=2 if self._uses_values else 1)
        return results[0], results[1] if self._uses_values else None

    def reference(self, samples: Samples) -> torch.Tensor:
        return self._evaluate(self._reference, samples, num_results=1)[0]

    @torch.no_grad()
    def _evaluate(self, model: Any, samples: Samples, num_results: int) -> torch.Tensor:
        """[num_results, b, R]: log-probs, then values, on every rank of the replica."""

        def end(output: Any, _own: Tensors) -> Tuple[Any, None]:
            # One tensor, since where there are experts Megatron asks for its device.
            return (torch.stack(output[:num_results]) if self._is_last_stage else output), None

        outputs = self._run(model, self._micros(samples, {}), end, forward_only=True)
        if self._is_last_stage:
            results = torch.stack([join_responses(part, samples.longest_response) for part in zip(*outputs)])
        else:
            results = torch.empty((num_results, len(samples), samples.longest_response), device=self.device)
        if self._model.config.pipeline_model_parallel_size > 1:
            dist.broadcast(results, **self._from_last_stage)
        return results

    def train(self, samples: Samples, batch: Tensors, loss_fn: LossFunction) -> Dict[str, float]:
        def loss(own: Tensors, output: Tuple[torch.Tensor, Optional[torch.Tensor]]) -> Tuple[torch.Tensor, Tensors]:
            whole, parts = loss_fn(*output, own)
            return whole.clone(), parts  # the schedule divides it in place, whatever of the parts shares its storage

        self._policy.train()
        self._policy.zero_grad_buffer()
        self._optimizer.zero_grad()
        micros = self._micros(samples, batch)
        outputs = self._run(self._policy, micros, lambda output, own: (output, partial(loss, own)), forward_only=False)
        updated, gradient_norm, _zeros = self._optimizer.step()
        statistics = self._share_statistics(outputs)
        # Megatron looks for an overflow on all ranks of a replica together, so that they skip together.
        statistics["skipped_steps"] = int(not updated)
        statistics["padded_tokens"] = sum(part.tokens.numel() for part, _ in micros) - samples.real_tokens
        if gradient_norm is not None:
            statistics["gradient_norm"] = float(gradient_norm)
        return statistics

    def _micros(self, samples: Samples, batch: Tensors) -> List[Tuple[MicroBatch, Tensors]]:
        parts = samples.micro_batches(self._micro_batch, batch)
        return [(MicroBatch(part, self._packing, self._length_multiple), own) for part, own in parts]

    def _run(self, model: Any, micros: Sequence[Any], end: Callable, forward_only: bool) -> List[Any]:
        """One pass of Megatron's schedule over the micro batches; the last stage's statistics of each, else empty.
        ``end``: of a stage's output and a micro batch's own tensors, what the schedule goes on with."""

        def forward(remaining: Iterator[Tuple[MicroBatch, Tensors]], stage: Any) -> Any:
            rows, own = next(remaining)
            return end(stage(rows.tokens, rows), own)

        return stack.get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter(micros),
            model=model,
            num_microbatches=len(micros),
            forward_only=forward_only,
            **schedule_options(self._model.config, [part for part, _ in micros]),
        )

    def _share_statistics(self, statistics: Sequence[Tensors]) -> Dict[str, float]:
        """The mean over micro batches, from the last pipeline stage to all."""
        shared: List[Any] = [None]
        if self._is_last_stage:
            names = statistics[0]
            shared = [{name: float(sum(one[name] for one in statistics)) / len(statistics) for name in names}]
        if self._model.config.pipeline_model_parallel_size > 1:
            dist.broadcast_object_list(shared, device=self.device, **self._from_last_stage)
        return dict(shared[0])


def _in_precision(model: PolicyModel) -> Any:
    """Megatron's wrapper for half precision, which casts the weights it holds; fp32 needs none."""
    config = model.config
    return stack.Float16Module(config, model) if config.fp16 or config.bf16 else model


def _notes(manifest: Dict[str, Any], world: World) -> Iterator[str]:
    layout, size, on_cuda = manifest["layout"], manifest["size"], world.device.type == "cuda"
    trains, frozen = not manifest.get("generates_only"), manifest["workload"]["trainable_layers"] is not None
    precision, recompute = manifest["measure"]["precision"], layout["recompute"]
    one_queue = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"
    told = [
        "generation: one batch per replica through a static key-value cache, without CUDA graphs",
        manifest["work"].get("lengths")
        and "generation: the shortest prompt is prefilled, the rest goes token by token",
        layout["pipeline"] > 1 and "generation: the batch goes through the stages one by one; the others idle",
        on_cuda and WITHOUT_CUDNN,
        layout.get("packing") and "packing: samples of a micro batch in one row, attention sample by sample",
        size.get("experts") and "experts: one after another on each rank, no token dropped, no balancing loss",
        trains and precision != "fp32" and "gradients are accumulated and reduced in fp32 (Megatron's rule in bf16)",
        trains and frozen and recompute == "full" and "recompute: Megatron's backward goes through frozen layers too",
        on_cuda and layout["offload_optimizer"] and "optimizer offload: both moments on the host, the fp32 weights not",
        on_cuda and COMPILED and "bias + GELU and bias + dropout + add are fused by torch.compile",
        on_cuda and not COMPILED and "no fused kernels: torch.compile lacks Triton, a C compiler or Python's headers",
        on_cuda and not one_queue and "CUDA_DEVICE_MAX_CONNECTIONS is not 1: nothing orders communication first",
        not on_cuda and "none of Megatron's fused kernels on a CPU",
    ]
    yield from native.notes(layout.get("kernels", "torch"), world.device, "RMSNorm" if is_rotary(size) else "LayerNorm")
    yield from filter(None, told)
    yield from () if on_cuda else CPU_PATCHES


class KnownShapes(P2PCommunicator):
    """Megatron's communicator of a stage, for one pass over micro batches of these shapes, in their order. Its own way
    with variable lengths sends every tensor's shape ahead and waits for the device; here each stage has all samples.
    """

    def __init__(self, config: Any, shapes: Sequence[Tuple[int, int, int]]) -> None:
        own = copy.copy(config)
        own.variable_seq_lengths = True
        super().__init__(parallel_state.get_pipeline_model_parallel_group(), own)
        self._activations, self._gradients = iter(shapes), iter(shapes)

    def _communicate_shapes(self, _to_next: Any, _to_previous: Any, recv_prev: bool, recv_next: bool) -> Any:
        nothing = (0, 0, 0)
        return next(self._activations) if recv_prev else nothing, next(self._gradients) if recv_next else nothing


def schedule_options(config: Any, micros: Sequence[MicroBatch]) -> Dict[str, Any]:
    first = micros[0].tokens
    options: Dict[str, Any] = {"seq_length": first.size(1), "micro_batch_size": first.size(0)}
    if config.pipeline_model_parallel_size > 1 and len({micro.tokens.shape for micro in micros}) > 1:
        split = config.tensor_model_parallel_size if config.sequence_parallel else 1
        shapes = [(micro.tokens.size(1) // split, micro.tokens.size(0), config.hidden_size) for micro in micros]
        options["p2p_communicator"] = KnownShapes(config, shapes)
        options["pg_collection"] = ProcessGroupCollection.use_mpu_process_groups(
            required_pgs=["tp", "pp", "cp", "embd", "pos_embd", "dp_cp"]
        )
    return options
