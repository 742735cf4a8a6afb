"""What OpenRLHF 0.11.2, DeepSpeed and vLLM need on a CPU, done to their modules right as they are imported.

Standard library at import: every process of a run on a CPU imports this first (``start_up/sitecustomize.py``). Nothing
of it is done on a GPU. Line numbers are OpenRLHF's.
"""

import importlib.util
import os
import sys
import types
from importlib.abc import MetaPathFinder
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from suite.worker.vllm_common import plain_linear

#: the run's precision, for Ray's processes
PRECISION_VARIABLE = "SUITE_OPENRLHF_PRECISION"


class Patch(NamedTuple):
    """What is done ``before`` and ``after`` the own code of ``module`` runs, and why. No ``after``: it does not run."""

    name: str
    module: str
    reason: str
    after: Optional[Callable[[Any], None]]
    before: Callable[[], None] = lambda: None


#: in the order in which a run's notes list them
PATCHES: List[Patch] = []


def patch(name: str, module: str, reason: str, *before: Callable[[], None]) -> Callable[..., None]:
    return lambda after: PATCHES.append(Patch(name, module, reason, after, *before))


_FLASH_ATTENTION = {
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}


def _lend_flash_attention() -> None:
    """Names to import, of functions that only packing and ring attention call; taken back after the import."""

    def missing(*_arguments: Any, **_options: Any) -> None:
        raise RuntimeError("flash-attn is not there on a CPU: neither packing nor ring attention can be used")

    for name, functions in _FLASH_ATTENTION.items():
        module = types.ModuleType(name)
        for function in functions:
            setattr(module, function, missing)
        sys.modules[name] = module


@patch(
    "flash-attn",
    "openrlhf.models.ring_attn_utils",
    "OpenRLHF imports flash-attn, which is for GPUs: stand-ins that raise when called",
    _lend_flash_attention,
)
def _take_flash_attention_back(module: Any) -> None:
    for name in _FLASH_ATTENTION:
        del sys.modules[name]


class _Cpu(str):
    """torch.cuda.current_device() on a machine without: the device ``cpu``, which reads 0 inside of ``cuda:{}``.

    The replay buffer names such a device (trainer/ppo_utils/replay_buffer.py:40) and never uses it.
    """

    def __format__(self, spec: str) -> str:
        return "0"


def _no_cuda(module: Any) -> None:
    import torch

    def nothing(*_arguments: Any, **_options: Any) -> None:
        """There is no device to wait for."""

    torch.cuda.set_device = torch.cuda.synchronize = torch.cuda.current_stream = nothing
    torch.cuda.current_device = lambda: _Cpu("cpu")


patch(
    "cuda-calls",
    "openrlhf.trainer.ppo_utils.replay_buffer",
    "torch.cuda's set_device, synchronize, current_stream and current_device answer for the CPU",
)(_no_cuda)


@patch(
    "cpu-mesh-and-adam",
    "openrlhf.utils.deepspeed.deepspeed",
    "its device mesh is of CPUs, and DeepSpeed takes torch's AdamW, where its own would be compiled first",
)
def _mesh_of_cpus(module: Any) -> None:
    _no_cuda(module)
    on_device = module.init_device_mesh
    module.init_device_mesh = lambda _device, *arguments, **options: on_device("cpu", *arguments, **options)
    for name in ("get_ds_train_config", "get_ds_eval_config"):
        setattr(module.DeepspeedStrategy, name, _for_cpus(getattr(module.DeepspeedStrategy, name)))


def _for_cpus(configuration: Callable[..., Dict[str, Any]]) -> Callable[..., Dict[str, Any]]:
    """DeepSpeed's configuration with torch's Adam, and without 16 bit where the run is in fp32."""

    def changed(*arguments: Any, **options: Any) -> Dict[str, Any]:
        found = configuration(*arguments, **options)
        if found.get("optimizer"):
            found["optimizer"]["params"]["torch_adam"] = True
        if _is_fp32():
            found["bf16"]["enabled"] = False
        return found

    return changed


def _is_fp32() -> bool:
    return os.environ.get(PRECISION_VARIABLE) == "fp32"


@patch(
    "fp32-weights",
    "openrlhf.utils.utils",
    "OpenRLHF trains in 16 bit alone; in a run in fp32 its models and DeepSpeed keep fp32",
)
def _whole_weights(module: Any) -> None:
    import torch

    as_16_bit = module.convert_to_torch_dtype
    module.convert_to_torch_dtype = lambda name: torch.float32 if _is_fp32() else as_16_bit(name)


class _WholeRollouts:
    """In the place of vLLM's actor class: its engines get their model in fp32 where the run is in fp32."""

    def __init__(self, actor_class: Any) -> None:
        self._class = actor_class

    def options(self, **options: Any) -> "_WholeRollouts":
        return _WholeRollouts(self._class.options(**options))

    def remote(self, *arguments: Any, **options: Any) -> Any:
        return self._class.remote(*arguments, **({**options, "dtype": "float32"} if _is_fp32() else options))


@patch(
    "fp32-rollouts",
    "openrlhf.trainer.ray.vllm_engine",
    "OpenRLHF gives vLLM 16 bit alone; in a run in fp32 it is told fp32",
)
def _whole_rollouts(module: Any) -> None:
    module.RolloutRayActor = _WholeRollouts(module.RolloutRayActor)


@patch(
    "no-shared-memory-operator",
    "deepspeed.comm.torch",
    "DeepSpeed's shared-memory all-reduce is not compiled: gloo is used",
)
def _no_shared_memory(module: Any) -> None:
    module.build_shm_op = lambda: None


class _GlooGroup:
    """What is asked of vLLM's NCCL communicator: one tensor to everybody, from the training engine's first rank."""

    def __init__(self, master_address: str, master_port: int, rank: int, world_size: int, device: Any) -> None:
        from vllm.distributed.utils import stateless_init_torch_distributed_process_group as join

        self._group = join(host=master_address, port=master_port, rank=rank, world_size=world_size, backend="gloo")

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        self._group.broadcast(tensor.detach(), src).wait()


@patch("gloo-group", "openrlhf.utils.distributed_util", "weights go to vLLM over gloo in the place of NCCL")
def _group_over_gloo(module: Any) -> None:
    module.stateless_init_process_group = _GlooGroup


@patch(
    "weights-in-host-memory",
    "openrlhf.trainer.ray.vllm_worker_wrap",
    "vLLM's worker receives weights in host memory",
)
def _weights_in_host_memory(module: Any) -> None:
    def update_weight(self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        import torch

        assert dtype == self.model_config.dtype, "{} is {}, not {}".format(name, dtype, self.model_config.dtype)
        weight = torch.empty(shape, dtype=dtype)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])

    module.WorkerWrap.update_weight = update_weight


patch(
    "no-compiler",
    "vllm.env_override",
    "vLLM's changes to torch's compiler are not loaded: nothing is compiled, and every process starts sooner",
)(None)


@patch(
    "plain-linear",
    "vllm.model_executor.layers.utils",
    "vLLM's linear layers keep their weights, so that new ones can be written",
)
def _plain_linear(module: Any) -> None:
    module.dispatch_cpu_unquantized_gemm = plain_linear


def notes() -> Tuple[str, ...]:
    return tuple("CPU patch {}: {}".format(patch.name, patch.reason) for patch in PATCHES)


class Finder(MetaPathFinder):
    """Finds nothing itself: it has the patched modules' own loaders call the patches."""

    def __init__(self, patches: Iterable[Patch] = PATCHES) -> None:
        self._patches = {patch.module: patch for patch in patches}
        self._asking: Set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._patches or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            self._wrap(spec.loader, self._patches[name])
        return spec

    @staticmethod
    def _wrap(loader: Any, patch: Patch) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            patch.before()
            if patch.after is not None:
                execute(module)
                patch.after(module)

        loader.exec_module = exec_module


def install() -> None:
    """Have the modules patched that are imported from now on in this process; once is enough."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
