"""How long `suite --help` takes, and that it imports nothing heavy."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "typer", "numpy", "scipy", "matplotlib", "pydantic", "rich", "docker", "psutil", "transformers")
LIMIT_SECONDS = 0.15


def help_seconds(times: int = 21) -> list[float]:
    """Wall time of fresh processes, the first left out."""
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "suite", "--help"], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def imported_by_help() -> list[str]:
    """Top-level names of the heavy packages that `suite --help` imports."""
    command = [sys.executable, "-X", "importtime", "-m", "suite", "--help"]
    trace = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ}).stderr
    modules = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in trace.splitlines() if "|" in line}
    return sorted(modules.intersection(HEAVY))


def rows() -> list[tuple[str, str, str]]:
    """Figures for the table: what, figure, limit."""
    seconds = help_seconds()
    middle = statistics.median(seconds)
    spread = f"{middle:.3f} s (median of {len(seconds)}; {min(seconds):.3f} to {max(seconds):.3f})"
    heavy = ", ".join(imported_by_help()) or "none"
    return [
        ("`suite --help`, fresh process", spread, f"{LIMIT_SECONDS} s"),
        ("heavy packages that it imports", heavy, "none"),
    ]
