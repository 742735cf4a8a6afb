"""verl's own PPO trainer with its workers, agent loop, TransferQueue and vLLM servers, on a Ray cluster of the run."""

import os

from suite.worker.vllm_common import ONE_PROCESS, QUIET

#: Stacks of the engines' environment that verl would import where it finds them (``apart``)
HIDDEN = ("megatron", "deepspeed", "trl")
#: Platform of a CPU, by verl's own door for other hardware. The engines of FSDP are registered for cuda and npu alone.
CPU_VARIABLES = {
    "VERL_USE_EXTERNAL_MODULES": "suite.worker.trainers.verl.cpu",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    **ONE_PROCESS,
    "TORCHDYNAMO_DISABLE": "1",  # vLLM would compile parts of its sampler for half a minute, to save microseconds
}
VARIABLES = {
    "VERL_USE_EXTERNAL_MODULES": "suite.worker.trainers.verl.apart",
    "VERL_LOGGING_LEVEL": "WARN",
    "VERL_USE_EXTERNAL_PLUGINS": "none",
    **QUIET,
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare(device_type: str) -> None:
    """What verl, vLLM and Ray read from the environment, here and in every process that Ray starts."""
    os.environ.update(VARIABLES)
    if device_type == "cpu":
        os.environ.update(CPU_VARIABLES)
