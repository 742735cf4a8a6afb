"""The `suite` command with the scripted worker in the place of both engines: everything behind a worker, fast.

Run as ``python tests/scripted_suite.py run ...``; the stacks' versions are made up, so no stack need be installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: SUITE_TEST_WORKER: where ranks find it that do not see this checkout
WORKER = os.environ.get("SUITE_TEST_WORKER", str(ROOT / "tests" / "scripted_worker.py"))


def use_scripted_worker(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let both engine backends start the scripted worker, on a stack that needs no looking for."""
    import suite.backends.deepspeed
    import suite.backends.megatron
    import suite.conduct.planning.machine

    def worker_argv(driver: Any, manifest_path: str, bundle_path: str) -> tuple[str, ...]:
        return (WORKER, manifest_path, "--bundle", bundle_path)

    def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
        return dict.fromkeys(packages, "9.0-scripted")

    for driver in (suite.backends.deepspeed.DeepSpeed, suite.backends.megatron.Megatron):
        put(driver, "worker_argv", worker_argv)
    put(suite.conduct.planning.machine, "stack_versions", versions)
    put(suite.conduct.planning.machine, "stack_code", lambda python, packages: {})


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from suite.cli.main import INTERRUPTED, main

    try:
        use_scripted_worker()
    except KeyboardInterrupt:  # of a fault: these modules are imported before the command
        sys.exit(INTERRUPTED)
    main()
