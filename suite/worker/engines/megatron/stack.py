"""Everything that is used of megatron-core, imported in one place, quietly and without what a CPU never calls.

megatron-core (0.16.1) decorates its fused kernels with ``torch.compile`` as it is imported, which loads torch's
compiler: about 2.8 of 4.3 seconds, which are spared where no fused kernel is ever called.
"""

import importlib.util
import shutil
import sysconfig
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch

#: whether fused kernels (bias + GELU, bias + dropout + add) are compiled; else they must stay off
COMPILED = (
    torch.cuda.is_available()
    and importlib.util.find_spec("triton") is not None
    and any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang"))
    and Path(sysconfig.get_path("include"), "Python.h").exists()
)


def _leave_eager(function: Any = None, **_options: Any) -> Any:
    return function if function is not None else (lambda decorated: decorated)


with warnings.catch_warnings(), mock.patch.object(torch, "compile", torch.compile if COMPILED else _leave_eager):
    warnings.simplefilter("ignore")  # advice about Transformer Engine and Apex: a note says that they are absent
    from megatron.core import parallel_state, tensor_parallel, utils
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.inference.contexts import StaticInferenceContext
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
        get_gpt_layer_with_transformer_engine_spec,
    )
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer, grad_scaler
    from megatron.core.optimizer import optimizer as mixed_precision_optimizer
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
    from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel import random as parallel_random
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnBackend, AttnMaskType
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from megatron.core.transformer.transformer_config import TransformerConfig

if not hasattr(moe_utils, "te_general_gemm"):
    # A router asks whether it has this, and megatron-core forgets to say so where Transformer Engine is absent.
    moe_utils.te_general_gemm = None
