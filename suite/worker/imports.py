"""``python -m suite.worker.imports BACKEND DEVICE``: imports what a run of a backend imports in any of its processes.

Prints why that fails as JSON, null where it does not: the driver asks before anybody waits for a run to find out.
"""

import json
import os
import sys
from typing import List, Optional

from suite.worker.registry import TRAINERS, backend_class
from suite.worker.trainers.scratch import use_own_folder


def problem(backend: str, device_type: str) -> Optional[str]:
    """What cannot be imported first, in a line; None where everything can."""
    try:
        if backend in TRAINERS:
            use_own_folder()
            backend_class(backend, device_type).import_all(device_type)
        else:
            backend_class(backend, device_type)
    except Exception as error:  # noqa: BLE001 - whatever a stack raises while it is imported
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return ": ".join([type(error).__name__, *lines[:1]])
    return None


def main(arguments: List[str]) -> None:
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a stack prints is no answer
    os.write(answer, json.dumps(problem(*arguments)).encode())
    os._exit(0)  # threads of a stack may not end


if __name__ == "__main__":
    main(sys.argv[1:])
