"""Power, energy, clocks and temperature of this rank's GPU, sampled by a thread through NVIDIA's management library."""

import os
import threading
from functools import reduce
from operator import or_
from typing import Any, Dict, List, Optional

import torch

INTERVAL_SECONDS = 0.1
#: NVML's clock event reasons from bit 1 on (nvml.h, nvmlClocksEventReasons); bit 0 is idle, which limits nothing
_THROTTLE_REASONS = (
    *("applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown"),
    *("hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"),
)
#: by name; None where this GPU does not report it
Reading = Dict[str, Any]


class NvmlGpu:
    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self.handle = handle

    def ask(self, name: str, *arguments: Any) -> Any:
        """``nvmlDeviceGet...``: None where the GPU or its driver does not answer, or an old pynvml lacks the call."""
        question = getattr(self._nvml, "nvmlDeviceGet" + name, None)
        try:
            return question(self.handle, *arguments) if question else None
        except self._nvml.NVMLError:
            return None

    def sample(self) -> Reading:
        return {
            "power_watts": _thousandth(self.ask("PowerUsage")),
            "sm_clock_mhz": self.ask("ClockInfo", self._nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self.ask("ClockInfo", self._nvml.NVML_CLOCK_MEM),
            "temperature": self.ask("Temperature", self._nvml.NVML_TEMPERATURE_GPU),
            "throttle_mask": self.ask("CurrentClocksThrottleReasons"),
            "utilisation": self._utilisation(),
        }

    def _utilisation(self) -> Optional[int]:
        return getattr(self.ask("UtilizationRates"), "gpu", None)

    def energy_joules(self) -> Optional[float]:
        """Total board energy since the driver was loaded (Volta and later)."""
        return _thousandth(self.ask("TotalEnergyConsumption"))

    def used_bytes(self) -> Optional[int]:
        """Of the whole GPU's memory, by one query, so that it can be asked often."""
        return getattr(self._memory(), "used", None)

    def _memory(self) -> Any:
        """In use is what CUDA counts too: the library's first version adds what the driver keeps for itself."""
        second = getattr(self._nvml, "nvmlMemory_v2", None)
        return (second and self.ask("MemoryInfo", second)) or self.ask("MemoryInfo")

    def occupation(self) -> Dict[str, Any]:
        """What the GPU does now, before this process has made a context on it, and who else computes there."""
        memory = self._memory()
        running = [each for each in self.ask("ComputeRunningProcesses") or () if each.pid != os.getpid()]
        return {
            "processes": [{"pid": each.pid, "memory_bytes": each.usedGpuMemory} for each in running],
            "used_bytes": getattr(memory, "used", None),
            "total_bytes": getattr(memory, "total", None),
            "utilisation": self._utilisation(),
            "sm_clock_mhz": self.ask("ClockInfo", self._nvml.NVML_CLOCK_SM),
            "sm_clock_mhz_max": self.ask("MaxClockInfo", self._nvml.NVML_CLOCK_SM),
            "power_limit_watts": _thousandth(self.ask("EnforcedPowerLimit")),
            "power_limit_watts_default": _thousandth(self.ask("PowerManagementDefaultLimit")),
            "throttle_reasons": throttle_reasons(self.ask("CurrentClocksThrottleReasons") or 0),
        }

    def others(self) -> Dict[str, Optional[int]]:
        """Who else computes on the GPU while this process does: how many, and the busiest one's share in percent.

        None where processes are hidden, as in most containers: there not even this one is seen.
        """
        pids = {each.pid for each in self.ask("ComputeRunningProcesses") or ()}
        if os.getpid() not in pids:
            return {"other_processes": None, "other_utilisation": None}
        strangers = {pid for pid in pids if not _is_own(pid)}
        used = self.ask("ProcessUtilization", 0) if strangers else None
        shares = [each.smUtil for each in used or () if each.pid in strangers]
        return {"other_processes": len(strangers), "other_utilisation": max(shares, default=None)}

    def pci_address(self) -> Optional[str]:
        return pci_address(self.ask("PciInfo"))


def pci_address(found: Any) -> Optional[str]:
    """As Linux names the device's folder in /sys: ``0000:17:00.0``; None of what NVML does not tell."""
    if found is None:
        return None
    bus = found.busId.decode() if isinstance(found.busId, bytes) else found.busId
    domain, _, rest = bus.lower().partition(":")
    return "{}:{}".format(domain.lstrip("0").rjust(4, "0"), rest)


class DeviceSampler:
    """Samples ``gpu`` about every ``INTERVAL_SECONDS`` and summarises a window at a time."""

    def __init__(self, gpu: NvmlGpu) -> None:
        self._gpu = gpu
        self._samples: List[Reading] = []
        self._energy_at_open: Optional[float] = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def open_window(self) -> None:
        """Forget what was sampled so far and note the energy counter."""
        self._samples = []
        self._energy_at_open = self._gpu.energy_joules()

    def close_window(self) -> Reading:
        """What happened since ``open_window``: the ``device`` field of an ``iteration`` event.

        The counter's two readings are in it too: over successive windows the last less the first also holds what passed
        between them.
        """
        energy = self._gpu.energy_joules()
        used = None if energy is None or self._energy_at_open is None else energy - self._energy_at_open
        summary = summarise(list(self._samples), used)
        summary.update(energy_counter_begin_joules=self._energy_at_open, energy_counter_end_joules=energy)
        summary.update(self._gpu.others())
        return summary

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            sample = self._gpu.sample()
            self._samples.append(sample)


def summarise(samples: List[Reading], energy_joules: Optional[float]) -> Reading:
    """One window: means, extremes and every throttle reason seen; None where nothing was read."""
    clocks = _known(samples, "sm_clock_mhz")
    return {
        "energy_joules": energy_joules,
        "power_watts_mean": _mean(_known(samples, "power_watts")),
        "sm_clock_mhz_min": min(clocks, default=None),
        "sm_clock_mhz_mean": _mean(clocks),
        "memory_clock_mhz_mean": _mean(_known(samples, "memory_clock_mhz")),
        "temperature_max": max(_known(samples, "temperature"), default=None),
        "throttle_reasons": throttle_reasons(reduce(or_, _known(samples, "throttle_mask"), 0)),
        "utilisation_mean": _mean(_known(samples, "utilisation")),
        "samples": len(samples),
    }


def throttle_reasons(mask: int) -> List[str]:
    return [name for bit, name in enumerate(_THROTTLE_REASONS, start=1) if mask >> bit & 1]


def _is_own(pid: int) -> bool:
    """Whether it is of this rank, or of one that the same launcher started, as of a row that takes turns with this one:
    each was given a session of its own, which what it starts belongs to."""
    try:
        session = os.getsid(pid)
        if session == os.getsid(0):
            return True
        with open("/proc/{}/stat".format(session), "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1]) == os.getppid()  # proc(5): field 4
    except OSError:
        return False


def _thousandth(number: Optional[int]) -> Optional[float]:
    return None if number is None else number / 1000


def _known(samples: List[Reading], name: str) -> List[Any]:
    return [sample[name] for sample in samples if sample[name] is not None]


def _mean(values: List[float]) -> Optional[float]:
    return sum(values) / len(values) if values else None


def open_gpu(device: torch.device) -> NvmlGpu:
    """The NVML handle of torch's ``device``, found by UUID because CUDA_VISIBLE_DEVICES renumbers.

    Raises ImportError without nvidia-ml-py, RuntimeError where the UUID is unknown or not found.
    """
    import pynvml

    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    if uuid is None:
        raise RuntimeError("this torch does not report a device's UUID")
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID("GPU-{}".format(uuid))
    except pynvml.NVMLError as error:
        raise RuntimeError("NVML: {}".format(error)) from error
    return NvmlGpu(pynvml, handle)


def find_gpu(local_rank: int, notes: Optional[List[str]] = None) -> Optional[NvmlGpu]:
    """The GPU of a rank of this node; None where it is not found, which the ``notes`` then tell with the reason."""
    try:
        return open_gpu(torch.device("cuda", local_rank))
    except (ImportError, RuntimeError, AssertionError) as error:  # torch asserts that there is such a device
        if notes is not None:
            notes.append("power and clocks are not sampled: {}".format(error))
        return None
