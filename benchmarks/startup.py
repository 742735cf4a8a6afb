"""How long help and a small command take in a fresh process, and that help imports nothing heavy."""

import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.verdict import Row, at_most, median

HEAVY = ("torch", "typer", "numpy", "scipy", "matplotlib", "pydantic", "rich", "docker", "psutil", "transformers")
HELP = ("run", "--help")
LIMITS = {("--help",): 0.12, HELP: 0.12, ("sizes",): 0.2}


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


def rows() -> list[Row]:
    found = [Row("Python that does nothing, fresh process", _spread(process_seconds(("-c", ""))))]
    for command, limit in LIMITS.items():
        seconds = process_seconds(("-m", "suite", *command))
        what = f"`suite {' '.join(command)}`, fresh process"
        found.append(Row(what, _spread(seconds), f"{limit:g} s", at_most(median(seconds), limit)))
    heavy = imported_by_help()
    what = f"heavy packages that `suite {' '.join(HELP)}` imports"
    return [*found, Row(what, ", ".join(heavy) or "none", "no package", "not met" if heavy else "met")]


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds).text('.3f')} s (median of {len(seconds)})"
