"""Requests that the tests of this folder vary."""

from importlib import metadata
from typing import Any

from suite.backends.registry import find_backend
from suite.conduct.planning.plan import Plan, make_joint_plan
from suite.conduct.planning.request import LayoutChoices, Request
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

STACKS = {
    "deepspeed": {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.19.0"},
    "megatron": {"torch": "2.13.0", "megatron-core": "0.16.1"},
}


def installed_stacks() -> dict[str, dict[str, str]]:
    """The versions that are here, for runs of the real engines."""
    return {name: {each: metadata.version(each) for each in find_backend(name).packages} for name in STACKS}


def shape(name: str = "tiny", **changes: Any) -> Shape:
    body = {"layers": 2, "hidden": 32, "ffn": 128, "heads": 4, "kv_heads": 4, "vocab": 256, "positions": 64}
    return Shape(name=name, **{**body, **changes})


def workload(**changes: Any) -> Workload:
    body = {"name": "tiny", "prompt_tokens": 8, "new_tokens": 8, "rollouts": 4, "micro_batch": 2}
    return Workload(**{**body, **changes})


def request(**changes: Any) -> Request:
    body: dict[str, Any] = {
        "backends": ("deepspeed", "megatron"),
        "sizes": (shape(),),
        "ranks": (1, 2),
        "workload": workload(),
        "measure": Measure(device="cpu", precision="fp32", warmup=1, iterations=3),
        "repeats": 2,
        "layout": LayoutChoices(),
    }
    return Request(**{**body, **changes})


def make_plan(request: Request, stacks: Any, *more: Any, **settings: Any) -> Plan:
    """Of a single request."""
    return make_joint_plan((request,), stacks, *more, **settings)
