"""What connects the devices of a run's first node, in a few words."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from suite.bundle.facts import inner, listed_objects, positive
from suite.bundle.record import Record
from suite.report.formatting.numbers import number


def links_text(record: Record) -> str:
    """``8 x 18 NVLinks, PCIe 5 x16``: links that are up, and the slot; empty where nothing is known."""
    return _counted(map(_gpu, gpus(record)))


def adapters_text(record: Record) -> str:
    """``8 x 400 Gb/s InfiniBand``: ports that are up; empty for none."""
    return _counted(map(_adapter, active_adapters(record)))


def link_kinds(record: Record) -> tuple[str, ...]:
    """Links of a device and adapters that are up, each kind once: equal for any number of ranks on one machine. Nothing
    of a run that was not told its topology."""
    if inner(record.environment.worker, "topology") is None:
        return ()
    kinds = (map(_nvlinks, gpus(record)), map(_adapter, active_adapters(record)))
    return tuple("; ".join(sorted(set(filter(None, found)))) for found in kinds)


def gpus(record: Record) -> list[dict[str, Any]]:
    return listed_objects(inner(record.environment.worker, "topology", "gpus"))


def active_adapters(record: Record) -> list[dict[str, Any]]:
    adapters = listed_objects(inner(record.environment.worker, "topology", "adapters"))
    return [one for one in adapters if one.get("state") == "ACTIVE"]


def _nvlinks(gpu: dict[str, Any]) -> str:
    links, active = (inner(gpu, "nvlinks", name) for name in ("links", "active"))
    joined = f"{active} NVLinks" if active == links else f"{active} of {links} NVLinks"
    return joined if positive(links) and type(active) is int else ""


def _gpu(gpu: dict[str, Any]) -> str:
    generation, width = inner(gpu, "pcie", "max_generation"), inner(gpu, "pcie", "width")
    parts = (_nvlinks(gpu), f"PCIe {generation} x{width}" if positive(generation) and positive(width) else "")
    return ", ".join(filter(None, parts))


def _adapter(adapter: dict[str, Any]) -> str:
    rate, layer = positive(adapter.get("bits_per_second")), adapter.get("link_layer")
    known = layer if isinstance(layer, str) else ""
    return f"{number(rate / 1e9)} Gb/s {known}".strip() if rate else known


def _counted(texts: Iterable[str]) -> str:
    counts = Counter(text for text in texts if text)
    return "; ".join(f"{count} x {text}" for text, count in counts.most_common(3))
