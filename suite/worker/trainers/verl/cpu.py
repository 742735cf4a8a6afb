"""What verl needs on a CPU, imported in each of its processes by its own door (``VERL_USE_EXTERNAL_MODULES``).

verl's engines and workers run as they are, on a platform that is made here; ``work.REPLACED`` lists what is replaced.
"""

import types
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Tuple

import torch

from suite.worker.trainers.verl import apart  # noqa: F401 - hides what verl must not find, before it looks

_BYTES_FREE, _BYTES = 1 << 33, 1 << 34


class _Device(types.ModuleType):
    """torch.cpu under the names of torch.cuda that verl calls: no memory is counted, nothing is waited for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = {
            "get_rng_state": torch.get_rng_state,
            "set_rng_state": torch.set_rng_state,
            "get_device_name": lambda *_: "CPU",  # a key of verl's table of peaks
            "mem_get_info": lambda *_: (_BYTES_FREE, _BYTES),
        }
        if name in known:
            return known[name]
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        nothing = 0 if name.startswith(("max_memory", "memory_")) else None
        return lambda *_, **__: nothing


_DEVICE = _Device("suite_verl_cpu_device")


def _register_platform() -> None:
    from verl.plugin.platform.platform_base import PlatformBase
    from verl.plugin.platform.platform_manager import PlatformRegistry

    @PlatformRegistry.register(platform="cpu")
    class Cpu(PlatformBase):
        device_name = "cpu"
        vendor_name = "cpu"
        device_module = _DEVICE

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, use_smi_check: bool = False) -> bool:
            return True

        def current_device(self) -> Any:
            return torch.device("cpu")

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None:
            pass

        def synchronize(self, device_index: Any = None) -> None:
            pass

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

        def set_allocator_settings(self, settings: str) -> None:
            pass

        def empty_cache(self) -> None:
            pass

        def get_device_capability(self, device_index: int = 0) -> Tuple[None, None]:
            return (None, None)

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "CUDA_VISIBLE_DEVICES"

        def ray_resource_name(self) -> str:
            return "GPU"  # the cluster says that it has some, and Ray only counts them

        def ray_resource_options(self, num_gpus: float) -> Dict[str, Any]:
            return {"num_gpus": num_gpus}

        def ray_noset_envvars(self) -> List[str]:
            return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

        def is_ipc_supported(self) -> bool:
            return False

        @contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None:
            pass

        def profiler_stop(self) -> None:
            pass

        def cudart(self) -> None:
            return None


def _replace() -> None:
    import torch.distributed as dist
    import torch.distributed.fsdp as fsdp
    from torch.distributed import distributed_c10d
    from transformers import AutoModelForTokenClassification as TokenClassification

    init = dist.init_process_group

    def init_process_group(backend: Any = None, *arguments: Any, **options: Any) -> Any:
        return init("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *arguments, **options)

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
    fsdp.CPUOffloadPolicy = lambda pin_memory=True: fsdp.OffloadPolicy()  # type: ignore[assignment,misc]
    from_pretrained = TokenClassification.from_pretrained.__func__  # type: ignore[attr-defined]

    def with_other_attention(cls: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("attn_implementation") == "flash_attention_2":
            options["attn_implementation"] = "sdpa"
        return from_pretrained(cls, *arguments, **options)

    TokenClassification.from_pretrained = classmethod(with_other_attention)  # type: ignore[assignment]


_register_platform()
_replace()
