"""The limit on the size of files that a shell gives to what it starts (``ulimit -f``), and who has met it."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterable
from pathlib import Path

from suite.launch.traces import log_size


def is_size_limit(error: OSError) -> bool:
    """Whether a file could not be written because it would have been too large."""
    return error.errno == errno.EFBIG


def at_size_limit(files: Iterable[Path]) -> str | None:
    """What is to be said where one of the files is as large as this process and its ranks may make any; else null.

    A rank that meets the limit is killed by SIGXFSZ, or told so when it writes, and can then write no word of it.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return None
    full = next((file for file in files if log_size(file) >= limit), None)
    if full is None:
        return None
    return (
        f"{full.parent.name}/{full.name} has reached the {limit} bytes that a file of this shell may have (ulimit -f): "
        "raise the limit"
    )
