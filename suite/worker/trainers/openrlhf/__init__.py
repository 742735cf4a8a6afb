"""OpenRLHF's own PPO trainers on Ray: DeepSpeed trains, vLLM generates."""

import os

from suite.worker.trainers.openrlhf.cpu import install
from suite.worker.vllm_common import ONE_PROCESS

_START_UP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start_up")
#: what OpenRLHF's own ``ray.init`` would set for Ray's workers
_VARIABLES = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
}
#: DeepSpeed's accelerator is named; tensors that Ray maps read-only could not be written to in place, as on a CPU the
#: trainer does; nothing is compiled
_CPU_VARIABLES = {
    "DS_ACCELERATOR": "cpu",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "0",
    **ONE_PROCESS,
    "TORCHDYNAMO_DISABLE": "1",
}


def prepare(device_type: str) -> None:
    """Set what this rank's process, Ray and all that Ray starts read from their environment."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    if device_type == "cpu":
        os.environ.update(_CPU_VARIABLES)
        install()
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_START_UP, os.environ.get("PYTHONPATH"))))
