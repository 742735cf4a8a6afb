"""What a rank sends in collectives, by group: counted where torch hands them to a process group, whoever calls."""

from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

#: of each collective, which argument is the whole of it, and how often a ring moves that, less each rank's own share
#: (Patarasuk and Yuan, JPDC 2009)
_RINGS = {
    **dict.fromkeys(("allreduce_", "allreduce_coalesced_"), (0, 2)),
    **dict.fromkeys(("allgather_", "_allgather_base_", "allgather_into_tensor_coalesced_", "reduce_"), (0, 1)),
    **dict.fromkeys(("reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"), (1, 1)),
    "alltoall_base_": (1, 1),  # no ring, but each rank keeps its share
}


class Messages(TorchDispatchMode):
    """``bytes`` of a ring by name of the group, and those ``handed_on`` to neighbours. Meta tensors are counted and
    replaced by empty ones, which are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()
        self.handed_on = 0

    def hand_on(self, operations: list[Any]) -> list[Any]:
        """In the place of ``batch_isend_irecv``, where nobody is at the other end."""
        self.handed_on += sum(each.tensor.nbytes for each in operations if each.op is dist.isend)
        return []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function.namespace == "c10d":
            name = function._schema.name.split("::")[1]
            if name in _RINGS:
                which, times = _RINGS[name]
                group = ProcessGroup.unbox(next(each for each in arguments if isinstance(each, torch.ScriptObject)))
                whole = sum(tensor.nbytes for tensor in tree_leaves(arguments[which]))
                self.bytes[group.group_name] += whole * times * (group.size() - 1) / group.size()
            arguments = tree_map_only(torch.Tensor, _sendable, arguments)
            if name == "alltoall_base_" and not arguments[0].numel():
                arguments = [[] if isinstance(each, list) else each for each in arguments]  # no parts of what is empty
        return function(*arguments, **(options or {}))


def _sendable(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0) if tensor.is_meta else tensor
