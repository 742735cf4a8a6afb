"""The ranks' side: the suite's worker with an engine of this package."""

from __future__ import annotations

from typing import Any

from suite.worker.__main__ import leave_process, main


def find_scheduler(manifest: dict[str, Any]) -> type[Any]:
    """Import the stack only now: the worker has told of its start by then."""
    from suite_example_backend.engine import BigramEngine

    return BigramEngine


if __name__ == "__main__":
    leave_process(main(find_build=find_scheduler))
