"""Room on the disk of a run that is kept free for its end: a full disk must not take the record with it."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

#: more than the last events of a driver and a record of a thousand ranks
_BYTES = 512 << 10
#: what a rank's last words take
_LEAST_BYTES = 4096


class SpareRoom:
    """``release`` gives it to whoever writes next."""

    def __init__(self, folder: Path, file: BinaryIO | None) -> None:
        self._folder, self._file = folder, file

    def is_all_there_is(self) -> bool:
        """Whether nobody else finds room in the file system, or is given any."""
        try:
            with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, _LEAST_BYTES)
        except OSError as error:
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        return False

    def release(self) -> None:
        """Once or several times."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextmanager
def spare_room(folder: Path) -> Iterator[SpareRoom]:
    """Room in the file system of a folder while the block runs; none where it has none. The file that takes it has no
    name, so that a driver that is killed leaves nothing."""
    room = SpareRoom(folder, _taken(folder))
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
