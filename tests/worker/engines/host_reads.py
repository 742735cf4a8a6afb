"""Where the host waits for the device: numbers that it reads, and tensors that it makes of its own.

On CUDA each is a synchronisation of the stream; on a CPU they are found by the same calls.
"""

import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
#: what needs values of a tensor, for a number or for a shape
_READS = {
    each.default
    for each in (_ATEN._local_scalar_dense, _ATEN.nonzero, _ATEN.masked_select, _ATEN.equal, _ATEN._unique2)
}
Sites = dict[str, set[int]]


class _Reads(TorchDispatchMode):
    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        by_mask = function is _ATEN.index.Tensor and any(
            index is not None and index.dtype == torch.bool for index in arguments[1]
        )
        if function in _READS or by_mask:
            self._note()
        return function(*arguments, **(options or {}))


@contextlib.contextmanager
def host_reads(moment: Callable[[], int]) -> Iterator[Sites]:
    """``module.function`` of each site within, and the moments at which it waited."""
    sites: Sites = defaultdict(set)
    make, to = torch.tensor, torch.Tensor.to

    def note() -> None:
        frame: Any = sys._getframe(2)
        while frame.f_globals["__name__"].split(".")[0] in ("torch", "contextlib"):
            frame = frame.f_back
        sites[f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"].add(moment())

    def made(*arguments: Any, **options: Any) -> Any:
        if options.get("device") is not None:
            note()
        return make(*arguments, **options)

    def moved(tensor: Any, *arguments: Any, **options: Any) -> Any:
        # A stack moves what lies there already; the suite moves what it has made.
        is_suites = sys._getframe(1).f_globals["__name__"].startswith("suite.")
        if is_suites and any(isinstance(one, torch.device) for one in arguments):
            note()
        return to(tensor, *arguments, **options)

    with _Reads(note), mock.patch.object(torch, "tensor", made), mock.patch.object(torch.Tensor, "to", moved):
        yield sites
