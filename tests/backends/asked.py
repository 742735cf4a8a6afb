"""What a backend answers when it is asked for a layout and for work."""

from typing import Any

from suite.backends.base import unknown_work
from suite.backends.registry import find_backend
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

GIB = 1 << 30
CPU = Measure(device="cpu", precision="fp32")
CUDA = Measure(device="cuda", precision="bf16")
#: backends whose usual work is not that of `cpu` on a tiny Llama on a CPU
GRPO = {"algorithm": "grpo", "group": 2}
WORK: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("trl-grpo", "nemo-rl"), GRPO),
    "trl-rloo": {"algorithm": "rloo", "group": 2},
}
SIZES = {"trlx-deepspeed": "1M", "trlx-ddp": "1M", "trlx-nemo": "1.3B"}
ON_CUDA = ("trlx-nemo", "nemo-rl")


def size_of(backend: str, **changes: Any) -> Shape:
    """The size that a backend is usually asked for, or another by ``name``, with changes."""
    size = find_size(changes.pop("name", SIZES.get(backend, "1M-llama")))
    return size.model_copy(update=changes)


def work_of(backend: str, **changes: Any) -> Workload:
    """The work that it is usually asked for, with changes."""
    return find_workload("cpu").changed({**WORK.get(backend, {}), **changes})


def layout_of(backend: str, ranks: int = 2, nodes: int = 1, size: Shape | None = None, **asked: Any) -> Layout:
    """What it lays out for its usual size and work, or another size. Raises ValueError where it refuses."""
    request = LayoutRequest(nodes=nodes, devices_per_node=ranks // nodes, **asked)
    return find_backend(backend).layout(size or size_of(backend), work_of(backend), request)


def refusals(
    backend: str,
    size: dict[str, Any] | None = None,
    work: dict[str, Any] | None = None,
    layout: dict[str, Any] | None = None,
    measure: dict[str, Any] | None = None,
    **asked: Any,
) -> list[str]:
    """What it says against the work, on what it lays out or, with fields of a layout, on that one."""
    driver, shape, workload = find_backend(backend), size_of(backend, **(size or {})), work_of(backend, **(work or {}))
    laid = layout_of(backend, size=shape, **asked)
    if layout is not None:
        laid = Layout(**{"devices_per_node": 2, "data": 2, **layout})
    usual = CUDA if backend in ON_CUDA else CPU
    how = usual.model_copy(update=measure or {})
    return [*driver.errors(shape, workload, laid, how), *unknown_work(driver, workload)]
