"""Gradients and optimizer of a Megatron policy: DistributedDataParallel and AdamW, plain or distributed."""

from typing import Any, Dict, List

import torch

from suite.worker.engines.megatron import stack

#: As the deepspeed engine starts; Megatron's own, 2^32, overflows for the first dozens of steps
INITIAL_LOSS_SCALE = 2.0**12


def wrap_for_training(module: Any, layout: Dict[str, Any], device: torch.device) -> stack.DistributedDataParallel:
    """The module with gradient buffers in fp32, averaged over replicas; on CUDA while backward still runs."""
    config = module.config
    overlap = device.type == "cuda" and layout["data"] > 1
    ddp_config = stack.DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=overlap,
        bucket_size=layout.get("bucket_elements"),
        use_distributed_optimizer=layout["distributed_optimizer"],
    )
    policy = stack.DistributedDataParallel(config, ddp_config, module)
    config.finalize_model_grads_func = stack.finalize_model_grads
    if overlap:
        config.no_sync_func = policy.no_sync
    return policy


def build_optimizer(policy: stack.DistributedDataParallel, manifest: Dict[str, Any]) -> Any:
    """AdamW with the workload's coefficients on all that requires a gradient, biases and LayerNorm decayed too. With
    ``offload_optimizer`` Megatron's HybridDeviceOptimizer keeps both moments, not the fp32 weights, in host memory."""
    wanted, layout, config = manifest["workload"]["optimizer"], manifest["layout"], policy.config
    offload = layout["offload_optimizer"]
    optimizer = stack.get_megatron_optimizer(
        stack.OptimizerConfig(
            optimizer="adam",
            lr=wanted["learning_rate"],
            adam_beta1=wanted["beta1"],
            adam_beta2=wanted["beta2"],
            adam_eps=wanted["epsilon"],
            weight_decay=wanted["weight_decay"],
            clip_grad=wanted["gradient_clip"],
            params_dtype=config.params_dtype,
            fp16=config.fp16,
            bf16=config.bf16,
            initial_loss_scale=INITIAL_LOSS_SCALE,
            use_distributed_optimizer=layout["distributed_optimizer"],
            optimizer_cpu_offload=offload,
            optimizer_offload_fraction=1.0 if offload else 0.0,
        ),
        [policy],
        # An empty mapping, not None: no parameter is left out of weight decay, as in plain AdamW.
        config_overrides={},
        use_gloo_process_groups=False,
    )
    config.grad_scale_func = optimizer.scale_loss
    # Without Apex and Transformer Engine it is torch's AdamW, tensor by tensor with temporaries unless told otherwise.
    for one in _chained(optimizer):
        if isinstance(one.optimizer, torch.optim.AdamW):
            for group in one.optimizer.param_groups:
                group["fused"] = True
    return optimizer


def kernels(optimizer: Any) -> List[str]:
    """The classes that do the update, by module: torch's, or those of a Transformer Engine or Apex that is there."""
    inner = [one.optimizer for one in _chained(optimizer) if one.optimizer is not None]
    names = ["{}.{}".format(type(one).__module__, type(one).__qualname__) for one in inner]
    fused = [any(group.get("fused") for group in one.param_groups) for one in inner]
    return sorted({name + (", fused" if is_fused else "") for name, is_fused in zip(names, fused)})


def _chained(optimizer: Any) -> List[Any]:
    return getattr(optimizer, "chained_optimizers", [optimizer])
