"""Low-rank adapters (Hu et al., arXiv 2106.09685) beside the frozen matrices of Hugging Face's GPT-2 blocks."""

from typing import Any

import torch
from torch import nn

#: c_attn holds the matrices of query, key and value side by side: one adapter each, as for matrices of their own
_MATRICES = {"attn.c_attn": 3, "attn.c_proj": 1, "mlp.c_fc": 1, "mlp.c_proj": 1}


class LowRank(nn.Module):
    """``base(x) + (x down) up / rank``: ``groups`` adapters of one input, their outputs side by side.

    ``down`` [in, groups x rank], ``up`` [groups, rank, out / groups]. Scaled as DeepSpeed-Chat scales by default
    (``dschat/utils/module/lora.py``); nothing is fused into ``base`` for generation.
    """

    def __init__(self, base: Any, rank: int, groups: int) -> None:
        """``base``: a Conv1D of transformers, whose weight is [in, out]; under ZeRO-3 perhaps partitioned already."""
        super().__init__()
        inside, outside = getattr(base.weight, "ds_shape", base.weight.shape)
        self.base = base
        self.base.weight.requires_grad_(False)
        self.rank, self.groups = rank, groups
        self.down = nn.Parameter(torch.empty(inside, groups * rank))
        self.up = nn.Parameter(torch.empty(groups, rank, outside // groups))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[*, in] -> [*, out]."""
        low = (states @ self.down).reshape(-1, self.groups, self.rank).transpose(0, 1)
        added = torch.bmm(low, self.up).transpose(0, 1).reshape(*states.shape[:-1], -1)
        return self.base(states) + added / self.rank


def add_adapters(blocks: nn.ModuleList, rank: int) -> None:
    """Put an adapter beside each of the four matrices of every block; biases, norms and embeddings go on training."""
    for block in blocks:
        for path, groups in _MATRICES.items():
            parent_name, name = path.split(".")
            parent = getattr(block, parent_name)
            setattr(parent, name, LowRank(getattr(parent, name), rank, groups))
