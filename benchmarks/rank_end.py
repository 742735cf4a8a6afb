"""How every rank of a benchmark ends: as the worker does, by leaving the process, not by the interpreter's way out.

That way out destroys what threads of torch still hold: one that wants the interpreter then is ended within C++ code,
which aborts the process ("terminate called without an active exception") though all of its work was done.
"""

import traceback
from collections.abc import Callable
from typing import NoReturn

from suite.worker.__main__ import leave_process
from suite.worker.events import EventLog
from suite.worker.world import leave


def end_with(main: Callable[[], EventLog]) -> NoReturn:
    """Run ``main``, close the event log that it returns, leave the other ranks, and end this process."""
    try:
        main().close()
        leave()
    except BaseException:  # noqa: BLE001 - printed, and the exit code says it
        traceback.print_exc()
        leave_process(1)
    leave_process(0)
