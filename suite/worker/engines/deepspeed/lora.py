"""Low-rank adapters (Hu et al., arXiv 2106.09685) beside the frozen matrices of Hugging Face's blocks."""

from typing import Any, Dict

import torch
from torch import nn

from suite.worker.partitioned import whole_shape


class LowRank(nn.Module):
    """``base(x) + (x down) up / rank``: ``groups`` adapters of one input, their outputs side by side.

    ``down`` [in, groups x rank], ``up`` [groups, rank, out / groups]. Scaled as DeepSpeed-Chat scales by default
    (``dschat/utils/module/lora.py``); nothing is fused into ``base`` for generation.
    """

    def __init__(self, base: Any, rank: int, groups: int) -> None:
        """``base``: a Linear, or transformers' Conv1D, whose weight is [in, out]; under ZeRO-3 perhaps partitioned."""
        super().__init__()
        self.transposed = isinstance(base, nn.Linear)
        shape = whole_shape(base.weight)
        inside, outside = reversed(shape) if self.transposed else shape
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

    def merged(self) -> torch.Tensor:
        """The weight of one matrix that computes the same, laid out as ``base``'s; all three are whole here."""
        downs = self.down.split(self.rank, dim=1)
        added = torch.cat([down @ up for down, up in zip(downs, self.up)], dim=1) / self.rank
        merged: torch.Tensor = self.base.weight + (added.t() if self.transposed else added)
        return merged


def add_adapters(blocks: nn.ModuleList, matrices: Dict[str, int], rank: int) -> None:
    """Put an adapter beside each of the ``matrices`` (path -> groups) of every block; the rest goes on training."""
    for block in blocks:
        for path, groups in matrices.items():
            parent_name, name = path.split(".")
            parent = getattr(block, parent_name)
            setattr(parent, name, LowRank(getattr(parent, name), rank, groups))
