"""What connects the devices of plans: architecture, links, network, node size."""

from dataclasses import dataclass

from suite.planner.work import ARCHITECTURES
from suite.spec.catalogue import find_device
from suite.spec.device import Device

#: Without NVLink or its like: PCIe x16, one direction (PCI-SIG): 4.0, before it 3.0, from Hopper on 5.0.
_PCIE = {"volta": 16e9, "ampere": 32e9, "hopper": 64e9, "blackwell": 64e9, "other": 32e9}
#: The makers' own systems, bytes per second, direction and device: DGX-1 and DGX-2 (a card of 100 Gb/s for two
#: devices), DGX A100 (200 Gb/s each), DGX H100 and B200 and GB200 NVL72 (400).
_NETWORK = {"volta": 6.25e9, "ampere": 25e9, "hopper": 50e9, "blackwell": 50e9, "other": 25e9}
#: GB300 NVL72 and HGX B300 (800 Gb/s each), AMD's MI300X platform (400), Frontier (four cards of 200 for eight dies).
_OWN_NETWORK = {"GB300": 100e9, "B300": 100e9, "MI300X": 50e9, "MI250X": 12.5e9}
#: GB200 NVL72 and GB300 NVL72 join 72 devices by NVLink, of which powers of two are used; other systems eight.
_NODE_DEVICES = {"GB200": 64, "GB300": 64}
_PREFIXES = {"V1": "volta", "A": "ampere", "H": "hopper", "B": "blackwell", "GB": "blackwell"}
#: Devices by whose watts for each FLOP/s those of their architecture are judged: the makers' own flagships.
_FLAGSHIP = {"volta": "V100-SXM2-32GB", "ampere": "A100-SXM-80GB", "hopper": "H100-SXM-80GB", "blackwell": "B200"}
#: Of PCIe's rate what copies from and to pinned memory reach: about three quarters.
_PINNED_SHARE = 0.75
#: NVLink-C2C of a superchip, 900 GB/s in both directions together, which its two devices share (NVIDIA GB200 NVL72).
_CHIP_TO_CHIP = 225e9


@dataclass(frozen=True)
class Hardware:
    """One device where it stands. Bandwidths are bytes per second and direction."""

    name: str
    architecture: str
    peak: float
    peak_by_precision: dict[str, float]
    memory_bytes: float
    memory_bandwidth: float
    link: float
    network: float
    node_devices: int
    host_link: float
    power_share: float = 1.0
    power_watts: float | None = None

    def columns(self) -> dict[str, float]:
        """The properties of a job that its device gives."""
        fp4 = self.peak_by_precision.get("fp4")
        same = ("peak", "power_share", "memory_bandwidth", "link", "network", "node_devices", "host_link")
        return {
            **{name: getattr(self, name) for name in same},
            "architecture": ARCHITECTURES.index(self.architecture),
            "fp4_ratio": fp4 / self.peak if fp4 else 4.0,
            "capacity": self.memory_bytes,
        }


def hardware_of(device: Device) -> Hardware | None:
    """The device in its maker's own system; ``None`` where the catalogue has no 16-bit peak of it."""
    peak = device.peak_flops.get("bf16", device.peak_flops.get("fp16"))
    if peak is None:
        return None
    of_prefix = (each for prefix, each in _PREFIXES.items() if device.name.upper().startswith(prefix))
    architecture = next(of_prefix, "other")
    family = next((name for name in (*_OWN_NETWORK, *_NODE_DEVICES) if name in device.name), "")
    # A bridge joins two or four cards of a node; a ring over all of them goes at the pace of PCIe.
    link = device.link_bytes_per_second if device.link_devices is None else None
    return Hardware(
        name=device.name,
        architecture=architecture,
        peak=peak,
        peak_by_precision=dict(device.peak_flops),
        memory_bytes=device.memory_bytes,
        memory_bandwidth=device.memory_bytes_per_second,
        link=link / 2 if link else _PCIE[architecture],
        network=_OWN_NETWORK.get(family, _NETWORK[architecture]),
        node_devices=_NODE_DEVICES.get(family, 8),
        host_link=_PINNED_SHARE * (_CHIP_TO_CHIP if family in _NODE_DEVICES else _PCIE[architecture]),
        power_share=_power_share(device, architecture, peak),
        power_watts=device.power_watts,
    )


def _power_share(device: Device, architecture: str, peak: float) -> float:
    """Watts for each FLOP/s over those of the architecture's flagship: a chip with more of them is throttled less."""
    flagship = find_device(_FLAGSHIP.get(architecture, device.name))
    if flagship is None or device.power_watts is None or flagship.power_watts is None:
        return 1.0
    own = flagship.peak_flops.get("bf16", flagship.peak_flops["fp16"])
    return (device.power_watts / peak) / (flagship.power_watts / own)
