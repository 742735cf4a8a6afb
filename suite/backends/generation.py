"""Generation by vLLM beside any engine of the suite: what it needs, and what it is refused for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.shape import Shape

_FILE = Path(__file__).parents[1] / "worker" / "generation" / "vllm.json"


@cache
def limits() -> Mapping[str, Any]:
    """What ``suite/worker/generation/vllm.json`` declares for driver and worker alike."""
    return json.loads(_FILE.read_text(encoding="utf-8"))


def generation_errors(size: Shape, layout: Layout, measure: Measure) -> list[str]:
    """Why vLLM cannot generate for this model in this layout; empty when it can, or is not asked to."""
    if layout.generation != "vllm":
        return []
    known, errors = limits(), []
    if size.architecture not in known["architectures"]:
        families = ", ".join(known["architectures"])
        errors.append(
            f"--generation vllm is for {families} models, and {size.name} is of the {size.architecture} family; "
            "use --generation hf"
        )
    elif size.architecture == "qwen2" and size.head_dim * size.heads != size.hidden:
        errors.append(
            f"vLLM's qwen2 models have heads of width hidden / heads; those of {size.name} are {size.head_dim}"
        )
    if measure.device == "cpu" and size.head_dim not in known["cpu_head_widths"]:
        widths = ", ".join(map(str, known["cpu_head_widths"]))
        errors.append(f"vLLM on a CPU needs heads of width {widths}; those of {size.name} are {size.head_dim} wide")
    if measure.device == "cpu" and layout.engine_sleep:
        errors.append("vLLM cannot sleep on a CPU; leave out --engine-sleep")
    if layout.pipeline > 1 and layout.placement == "colocated":
        errors.append("vLLM holds whole layers on every rank: --generation vllm needs pipeline parallel 1")
    return errors


def vllm_error(device: str, versions: Mapping[str, str | None], where: str, is_choice: bool = True) -> str | None:
    """Why the ``versions`` found cannot generate on such a device, with what to do; None where they can.

    ``where``: what holds the stack, in words; ``is_choice``: whether something else could generate.
    """
    package, known = limits()["packages"][device], limits()["versions"]
    wanted, found = " or ".join(known), versions.get(package)
    way_out = "(docs/generation.md)" + (", or use --generation hf" if is_choice else "")
    if found is None:
        return f"--generation vllm needs {package} {wanted}, which {where} does not have; install it there {way_out}"
    if ".".join(found.split(".")[:2]) not in known:
        return (
            f"--generation vllm was made for {package} {wanted}, and {where} has {found}; install one of these "
            f"there {way_out}"
        )
    return None
