"""The CUDA device that the tests of this folder would use, as JSON: ``python -m tests.gpu.look``.

Where there is none it says loudly what is missing and ends with exit code 77, "nothing was tested".
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

NOTHING_TESTED = 77
#: what the tests import, beside what `make bench-gpu` needs
PACKAGES = ("torch", "deepspeed", "megatron.core", "transformers", "pynvml", "pytest", "pytest_timeout")


def look() -> dict[str, Any]:
    """``name uuid memory_bytes capability torch`` of the first device that torch sees, or ``problem``: why none."""
    if missing := [name for name in PACKAGES if not _is_found(name)]:
        return {"problem": f"{sys.executable} has no {', '.join(missing)}"}
    import torch

    if not torch.cuda.is_available():
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
        return {"problem": f"no CUDA device: torch {torch.__version__} ({build}) sees none"}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "uuid": f"GPU-{properties.uuid}",
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "torch": torch.__version__,
    }


def main() -> int:
    found = look()
    if "problem" in found:
        print(f"NOTHING WAS TESTED: {found['problem']}", file=sys.stderr)
        return NOTHING_TESTED
    print(json.dumps(found))
    return 0


def _is_found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


if __name__ == "__main__":
    sys.exit(main())
