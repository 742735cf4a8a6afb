"""A Transformer Engine of plain torch: what megatron-core's layers and optimizer call of it, where there is no CUDA.

Names of modules, arguments and parameters, and what marks a parameter as sharded, are those of Transformer Engine 2.11.
Kernels are what it cannot show: it stands in for them at the modules' own calls. As a script it is the program of one
rank of test_native.py: ``python -m tests.worker.engines.megatron.stub_transformer_engine``.
"""

import os
import sys
import types
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from typing import Any

import torch
import torch.nn.functional as F

from tests.worker.tiny import be_rank

NAME, VERSION = "transformer_engine", "2.11.0"
#: asked of it by megatron-core 0.16, and not in that version
MISSING = ("_SplitAlongDim",)


class _Unknown(type):
    """A class whose attributes are classes of that kind: for names that are only looked up."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unknown(name, (), {})


class _Module(types.ModuleType):
    """A module with every submodule and every attribute that is asked of it."""

    __version__ = VERSION

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in MISSING:
            raise AttributeError(name)
        return _Unknown(name, (), {})


class _Finder:
    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        ours = name.partition(".")[0] in (NAME, "transformer_engine_torch") and not name.endswith(MISSING)
        return ModuleSpec(name, self, is_package=True) if ours else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        for each in _CONTENTS.get(module.__name__, ()):
            setattr(module, each.__name__, each)


def install() -> None:
    """Before megatron-core is imported."""
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


def _mark_sharded(parameter: torch.nn.Parameter, dimension: int) -> None:
    parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, dimension, 1


def _undrawn(*sizes: int, dtype: torch.dtype) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.full(sizes, torch.nan, dtype=dtype))


class Linear(torch.nn.Module):
    """Column or row parallel, as ``parallel_mode`` says."""

    def __init__(
        self, in_features: int, out_features: int, parallel_mode: str, params_dtype: torch.dtype, **options: Any
    ) -> None:
        super().__init__()
        self.sequence_parallel, self.is_column = options["sequence_parallel"], parallel_mode == "column"
        self.group, self.return_bias = options["tp_group"], options["return_bias"]
        if self.is_column:
            out_features //= options["tp_size"]
        else:
            in_features //= options["tp_size"]
        self.weight = _undrawn(out_features, in_features, dtype=params_dtype)
        _mark_sharded(self.weight, 0 if self.is_column else 1)
        # Without a bias, Transformer Engine has an empty tensor there, which is no parameter.
        self.bias = _undrawn(out_features, dtype=params_dtype) if options["bias"] else None
        if self.bias is not None and self.is_column:
            _mark_sharded(self.bias, 0)
        elif self.bias is not None:
            self.bias.sequence_parallel = self.sequence_parallel

    def forward(self, states: torch.Tensor, is_first_microbatch: bool | None = None) -> Any:
        from megatron.core import tensor_parallel as regions

        spread, join = regions.copy_to_tensor_model_parallel_region, regions.reduce_from_tensor_model_parallel_region
        if self.sequence_parallel:
            spread = regions.gather_from_sequence_parallel_region
            join = regions.reduce_scatter_to_sequence_parallel_region
        if self.is_column:
            states = F.linear(spread(states, group=self.group), self.weight)
        else:
            states = join(F.linear(states, self.weight), group=self.group)
        if self.return_bias:
            return states, self.bias
        return states if self.bias is None else states + self.bias


class LayerNormLinear(Linear):
    def __init__(self, in_features: int, out_features: int, eps: float, normalization: str, **options: Any) -> None:
        super().__init__(in_features, out_features, **options)
        self.eps, self.normalization = eps, normalization
        for name in ("layer_norm_weight", *(["layer_norm_bias"] if normalization == "LayerNorm" else [])):
            parameter = _undrawn(in_features, dtype=options["params_dtype"])
            parameter.sequence_parallel = self.sequence_parallel
            setattr(self, name, parameter)

    def forward(self, states: torch.Tensor, is_first_microbatch: bool | None = None) -> Any:
        if self.normalization == "RMSNorm":
            normed = F.rms_norm(states, states.shape[-1:], self.layer_norm_weight, self.eps)
        else:
            normed = F.layer_norm(states, states.shape[-1:], self.layer_norm_weight, self.layer_norm_bias, self.eps)
        return super().forward(normed)


class _Norm(torch.nn.Module):
    """What both have beside torch's own."""

    def __init__(
        self, hidden_size: int, eps: float, sequence_parallel: bool, params_dtype: torch.dtype, **_options: Any
    ) -> None:
        super().__init__(hidden_size, eps=eps, dtype=params_dtype)
        self.sequence_parallel = sequence_parallel
        for parameter in self.parameters():
            torch.nn.init.constant_(parameter, torch.nan)
            parameter.sequence_parallel = sequence_parallel


class LayerNorm(_Norm, torch.nn.LayerNorm):
    pass


class RMSNorm(_Norm, torch.nn.RMSNorm):
    pass


class DotProductAttention(torch.nn.Module):
    """Without ``no_mask`` causal; the scale is 1 / sqrt(channels of a head)."""

    def __init__(self, **_options: Any) -> None:
        super().__init__()

    def forward(self, query: Any, key: Any, value: Any, mask: Any, attn_mask_type: str, **_options: Any) -> Any:
        assert mask is None and attn_mask_type in ("causal", "no_mask")
        inputs = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        context = F.scaled_dot_product_attention(*inputs, is_causal=attn_mask_type == "causal", enable_gqa=True)
        return context.permute(2, 0, 1, 3).flatten(2)


class FusedAdam(torch.optim.AdamW):
    def __init__(self, params: Any, adam_w_mode: bool, **options: Any) -> None:
        assert adam_w_mode
        super().__init__(params, **options)


def get_cpu_offload_context(*_arguments: Any, **_options: Any) -> tuple[Any, Any]:
    return nullcontext(), None


def multi_tensor_applier(function: Any, overflow: Any, tensors: Any, *arguments: Any) -> Any:
    return function(2048, overflow, tensors, *arguments)


def multi_tensor_l2norm(_chunk: int, _overflow: Any, tensors: Any, _per_tensor: bool) -> Any:
    return torch.stack([tensor.norm() for tensor in tensors[0]]).norm().view(1), None


def multi_tensor_scale(_chunk: int, _overflow: Any, tensors: Any, factor: float) -> None:
    for source, target in zip(*tensors, strict=True):
        target.copy_(source * factor)


_CONTENTS: dict[str, tuple[Any, ...]] = {
    f"{NAME}.pytorch": (Linear, LayerNormLinear, LayerNorm, RMSNorm, DotProductAttention),
    f"{NAME}.pytorch.cpu_offload": (get_cpu_offload_context,),
    f"{NAME}.pytorch.optimizers": (FusedAdam, multi_tensor_applier, multi_tensor_l2norm, multi_tensor_scale),
}


if __name__ == "__main__":
    if "megatron.core" in sys.modules:  # this process was forked with it
        own = ["-m", "tests.worker.engines.megatron.stub_transformer_engine"]
        os.execv(sys.executable, [sys.executable, *own, *sys.argv[1:]])
    from tests.worker.engines.megatron import stub_transformer_engine

    stub_transformer_engine.install()
    from tests.worker.engines.megatron.test_native import rank_program

    be_rank(rank_program)
