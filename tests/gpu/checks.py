"""The manifests of the checks, and how their programs are started."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.ranks import one_manifest, run_script
from suite.planner.predict_manifest import predict_manifest
from suite.spec.catalogue import find_device
from suite.spec.manifest import Manifest
from suite.spec.shape import Shape
from tests.gpu.rank import HIDDEN, LAYERS, NEW_TOKENS, PROMPT_TOKENS, ROWS

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 50257
#: what most checks train: seconds an iteration on a GPU, and enough bytes to see
SIZE = "125M"
WORKLOAD = {"prompt_tokens": 128, "new_tokens": 128, "rollouts": 16, "micro_batch": 8}
#: where the catalogue does not know the device: bytes of a layout hardly depend on it
USUAL_DEVICE = "A100-SXM-80GB"


def gpu_manifest(backend: str, iterations: int = 2, **changes: Any) -> Manifest:
    """One CUDA rank of SIZE in bf16, but for what is given."""
    given: dict[str, Any] = {"device": "cuda", "precision": "bf16", "workload": WORKLOAD, **changes}
    return one_manifest(backend, given.pop("size", SIZE), 1, iterations, **given)


def agreement_manifest(backend: str) -> Manifest:
    """A small shape with the real vocabulary and two micro batches a step."""
    widths = {"layers": LAYERS, "hidden": HIDDEN, "ffn": 4 * HIDDEN, "heads": 4, "kv_heads": 4, "vocab": VOCABULARY}
    shape = Shape(name="agreement", positions=PROMPT_TOKENS + NEW_TOKENS, **widths)
    work: dict[str, Any] = {"prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS, "rollouts": ROWS}
    work.update(micro_batch=ROWS // 2, optimizer={"learning_rate": 1e-4})
    layout: dict[str, Any] = {"zero_stage": (2,)} if backend == "deepspeed" else {"distributed_optimizer": False}
    return gpu_manifest(backend, size=shape, workload=work, layout=layout)


def run_check(name: str, manifest: Manifest, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What ``tests.gpu.rank`` measures in a process of its own. Raises RuntimeError with its last lines."""
    return run_script("tests.gpu.rank", manifest, before=(name,), variables=variables)


def run_together(checks: Sequence[tuple[str, Manifest]]) -> list[dict[str, Any]]:
    """Several checks at once, in which no time is measured and each process tells of itself alone."""
    with ThreadPoolExecutor(len(checks)) as pool:
        return list(pool.map(lambda check: run_check(*check), checks))


def predicted_states(manifest: Manifest, device: str) -> int:
    """Bytes of optimizer states that the planner expects to stay on the device."""
    known = device if find_device(device) else USUAL_DEVICE
    predicted = predict_manifest(manifest, known)
    assert predicted is not None, "the planner knows the engines on CUDA in bf16"
    return int(predicted["memory"].get("optimizer states", 0))
