"""What verl needs on a CPU, imported in each of its processes by its own door (``VERL_USE_EXTERNAL_MODULES``).

verl's engines and workers run as they are, on a platform that is made here; ``trainer.REPLACED`` lists the rest.
"""

import types
from contextlib import nullcontext
from typing import Any, Dict

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

    answers = {
        "is_available": True,
        "is_platform_available": True,
        "current_device": torch.device("cpu"),
        "device_count": 1,
        "get_device_capability": (None, None),
        "communication_backend_name": "gloo",
        "visible_devices_envvar": "CUDA_VISIBLE_DEVICES",
        "ray_resource_name": "GPU",  # the cluster says that it has some, and Ray only counts them
        "ray_noset_envvars": ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"],
        "is_ipc_supported": False,
        "nvtx_range": nullcontext(),
        **dict.fromkeys(("set_device", "synchronize", "set_allocator_settings", "empty_cache", "cudart")),
        **dict.fromkeys(("profiler_start", "profiler_stop")),
    }
    methods: Dict[str, Any] = {name: _answering(value) for name, value in answers.items()}
    seed = staticmethod(torch.manual_seed)
    methods.update(manual_seed=seed, manual_seed_all=seed)
    methods["ray_resource_options"] = staticmethod(lambda num_gpus: {"num_gpus": num_gpus})
    names = {"device_name": "cpu", "vendor_name": "cpu", "device_module": _DEVICE}
    PlatformRegistry.register(platform="cpu")(type("Cpu", (PlatformBase,), {**names, **methods}))


def _answering(value: Any) -> Any:
    """A method that says this, whatever it is asked."""
    return lambda *_, **__: value


def _replace() -> None:
    import torch.distributed as dist
    import torch.distributed.fsdp as fsdp
    from torch.distributed import distributed_c10d
    from transformers import AutoModelForTokenClassification as TokenClassification

    init = dist.init_process_group

    def init_process_group(backend: Any = None, *arguments: Any, **options: Any) -> Any:
        return init("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *arguments, **options)

    dist.init_process_group = distributed_c10d.init_process_group = init_process_group
    fsdp.CPUOffloadPolicy = lambda pin_memory=True: fsdp.OffloadPolicy()
    from_pretrained = TokenClassification.from_pretrained.__func__

    def with_other_attention(cls: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("attn_implementation") == "flash_attention_2":
            options["attn_implementation"] = "sdpa"
        return from_pretrained(cls, *arguments, **options)

    TokenClassification.from_pretrained = classmethod(with_other_attention)


_register_platform()
_replace()
