"""How long help and a small command take in a fresh process, and that help imports nothing heavy."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

HEAVY = ("torch", "typer", "numpy", "scipy", "matplotlib", "pydantic", "rich", "docker", "psutil", "transformers")
HELP = ("run", "--help")
LIMITS = {("--help",): "0.12 s", HELP: "0.12 s", ("sizes",): "0.2 s"}


def process_seconds(arguments: Sequence[str], times: int = 21) -> list[float]:
    """Wall time of fresh Python processes, the first left out."""
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def imported_by_help() -> list[str]:
    """Top-level names of the heavy packages that `suite run --help` imports."""
    command = [sys.executable, "-X", "importtime", "-m", "suite", *HELP]
    trace = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    modules = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in trace.splitlines() if "|" in line}
    return sorted(modules.intersection(HEAVY))


def rows() -> list[tuple[str, str, str]]:
    """Figures for the table: what, figure, limit."""
    found = [("Python that does nothing, fresh process", _spread(process_seconds(("-c", ""))), "none")]
    for command, limit in LIMITS.items():
        figure = _spread(process_seconds(("-m", "suite", *command)))
        found.append((f"`suite {' '.join(command)}`, fresh process", figure, limit))
    heavy = ", ".join(imported_by_help()) or "none"
    return [*found, (f"heavy packages that `suite {' '.join(HELP)}` imports", heavy, "none")]


def _spread(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    return f"{middle:.3f} s (median of {len(seconds)}; {min(seconds):.3f} to {max(seconds):.3f})"
