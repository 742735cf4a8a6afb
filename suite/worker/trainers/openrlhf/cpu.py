"""What OpenRLHF 0.11.2, DeepSpeed and vLLM need on a CPU, done to their modules right as they are imported.

Standard library at import: every process of a run on a CPU imports this first (``start_up/sitecustomize.py``). Nothing
of it is done on a GPU. Line numbers are OpenRLHF's.
"""

import os
import sys
import types
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any, Callable, Dict, Tuple

from suite.worker.vllm_common import plain_linear

#: the run's precision, for Ray's processes
PRECISION_VARIABLE = "SUITE_OPENRLHF_PRECISION"
#: is given a module that is empty still, and what runs its own code
Change = Callable[[Any, Callable[[], None]], None]
#: by module, in the order in which a run's notes list them: a name, and what is done, whose docstring says why
PATCHES: Dict[str, Tuple[str, Change]] = {}


def patch(name: str, module: str) -> Callable[[Change], None]:
    return lambda change: PATCHES.update({module: (name, change)})


_FLASH_ATTENTION = ("flash_attn", "flash_attn.bert_padding", "flash_attn.utils", "flash_attn.utils.distributed")
#: functions that only packing and ring attention call; here None, which cannot be called
_OF_FLASH_ATTENTION = ("index_first_axis", "pad_input", "rearrange", "unpad_input", "all_gather")


@patch("flash-attn", "openrlhf.models.ring_attn_utils")
def _lend_flash_attention(module: Any, run: Callable[[], None]) -> None:
    """OpenRLHF imports flash-attn, which is for GPUs: stand-ins that raise when called"""
    # for this import alone: others would take it for the real one
    lent = types.SimpleNamespace(**dict.fromkeys(_OF_FLASH_ATTENTION))
    sys.modules.update(dict.fromkeys(_FLASH_ATTENTION, lent))
    run()
    for name in _FLASH_ATTENTION:
        del sys.modules[name]


class _Cpu(str):
    """torch.cuda.current_device() on a machine without: the device ``cpu``, which reads 0 inside of ``cuda:{}``.

    The replay buffer names such a device (trainer/ppo_utils/replay_buffer.py:40) and never uses it.
    """

    def __format__(self, spec: str) -> str:
        return "0"


@patch("cuda-calls", "openrlhf.utils.deepspeed.deepspeed_utils")
def _no_cuda(module: Any, run: Callable[[], None]) -> None:
    """torch.cuda's set_device, synchronize, current_stream and current_device answer for the CPU"""
    import torch

    def nothing(*_arguments: Any, **_options: Any) -> None:
        """There is no device to wait for."""

    run()
    torch.cuda.set_device = torch.cuda.synchronize = torch.cuda.current_stream = nothing
    torch.cuda.current_device = lambda: _Cpu("cpu")


@patch("cpu-mesh-and-adam", "openrlhf.utils.deepspeed.deepspeed")
def _mesh_of_cpus(module: Any, run: Callable[[], None]) -> None:
    """its device mesh is of CPUs, and DeepSpeed takes torch's AdamW, where its own would be compiled first"""
    from suite.worker.trainers.iteration import after

    run()
    on_device = module.init_device_mesh
    module.init_device_mesh = lambda _device, *arguments, **options: on_device("cpu", *arguments, **options)

    def adapt(configuration: Dict[str, Any], *_: Any, **__: Any) -> None:
        if configuration.get("optimizer"):
            configuration["optimizer"]["params"]["torch_adam"] = True
        configuration["bf16"]["enabled"] = not _is_fp32()

    after(module.DeepspeedStrategy, "get_ds_train_config", adapt)
    after(module.DeepspeedStrategy, "get_ds_eval_config", adapt)


def _is_fp32() -> bool:
    return os.environ.get(PRECISION_VARIABLE) == "fp32"


@patch("fp32-weights", "openrlhf.utils.utils")
def _whole_weights(module: Any, run: Callable[[], None]) -> None:
    """OpenRLHF trains in 16 bit alone; in a run in fp32 its models and DeepSpeed keep fp32"""
    import torch

    run()
    as_16_bit = module.convert_to_torch_dtype
    module.convert_to_torch_dtype = lambda name: torch.float32 if _is_fp32() else as_16_bit(name)


@patch("fp32-rollouts", "vllm.engine.arg_utils")
def _whole_rollouts(module: Any, run: Callable[[], None]) -> None:
    """OpenRLHF gives vLLM 16 bit alone; in a run in fp32 it is told fp32"""
    run()
    if _is_fp32():
        from suite.worker.trainers.iteration import before

        before(module.EngineArgs, "create_model_config", lambda asked: setattr(asked, "dtype", "float32"))


@patch("no-shared-memory-operator", "deepspeed.comm.torch")
def _no_shared_memory(module: Any, run: Callable[[], None]) -> None:
    """DeepSpeed's shared-memory all-reduce is not compiled: gloo is used"""
    run()
    module.build_shm_op = lambda: None


@patch("gloo-group", "openrlhf.utils.distributed_util")
def _group_over_gloo(module: Any, run: Callable[[], None]) -> None:
    """weights go to vLLM over gloo in the place of NCCL"""

    def join(master_address: str, master_port: int, rank: int, world_size: int, device: Any) -> Any:
        """What is asked of vLLM's NCCL communicator: one tensor to everybody, from the training engine's first rank."""
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group as join_group

        group = join_group(host=master_address, port=master_port, rank=rank, world_size=world_size, backend="gloo")
        return types.SimpleNamespace(
            broadcast=lambda tensor, src, stream=None: group.broadcast(tensor.detach(), src).wait()
        )

    run()
    module.stateless_init_process_group = join


@patch("weights-in-host-memory", "openrlhf.trainer.ray.vllm_worker_wrap")
def _weights_in_host_memory(module: Any, run: Callable[[], None]) -> None:
    """vLLM's worker receives weights in host memory"""

    def update_weight(self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        import torch

        assert dtype == self.model_config.dtype, "{} is {}, not {}".format(name, dtype, self.model_config.dtype)
        weight = torch.empty(shape, dtype=dtype)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])

    run()
    module.WorkerWrap.update_weight = update_weight


@patch("no-compiler", "vllm.env_override")
def _no_compiler(module: Any, run: Callable[[], None]) -> None:
    """vLLM's changes to torch's compiler are not loaded: nothing is compiled, and every process starts sooner"""


@patch("plain-linear", "vllm.model_executor.layers.utils")
def _plain_linear(module: Any, run: Callable[[], None]) -> None:
    """vLLM's linear layers keep their weights, so that new ones can be written"""
    run()
    module.dispatch_cpu_unquantized_gemm = plain_linear


class Finder(MetaPathFinder):
    """Finds the patched modules where they lie, and has each one's patch run it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec = PathFinder.find_spec(name, path) if name in PATCHES else None
        if spec is not None:
            loader: Any = spec.loader
            execute = loader.exec_module
            loader.exec_module = lambda module: PATCHES[name][1](module, partial(execute, module))
        return spec


_FINDER = Finder()


def install() -> None:
    """Have the modules patched that are imported from now on in this process; once is enough."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
