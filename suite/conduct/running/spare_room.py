"""Room on the disk of a run that is kept free for its end: a full disk must not take the record with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

#: more than the last events of a driver and a record of a thousand ranks
_BYTES = 512 << 10


class SpareRoom:
    """``release`` gives it to whoever writes next."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file

    def release(self) -> None:
        """Once or several times."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextmanager
def spare_room(folder: Path) -> Iterator[SpareRoom]:
    """Room in the file system of a folder while the block runs; none where it has none. The file that takes it has no
    name, so that a driver that is killed leaves nothing."""
    room = SpareRoom(_taken(folder))
    try:
        yield room
    finally:
        room.release()


def _taken(folder: Path) -> BinaryIO | None:
    with suppress(OSError):
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by SpareRoom)
        try:
            os.posix_fallocate(file.fileno(), 0, _BYTES)
        except OSError:
            file.close()
            raise
        return file
    return None
