"""Pages of memory that a forked process would otherwise come by in the midst of its work.

Linux copies the page table of memory that a process has written to a child and lets faults fill that of files
(libraries, mostly); what was written is shared until one of the two writes again. A rank that imported its stack itself
has all of these pages as its own. A forked one takes them before it begins, so that its resident set is that of any
other rank and no iteration pays for a copy.
"""

import array
import ctypes
import os
from contextlib import suppress
from itertools import groupby
from typing import Iterator, List, Tuple

#: pages one behind the other: their address, their bytes, and how madvise(2) has them mapped
Run = Tuple[int, int, int]

POPULATE_READ, POPULATE_WRITE = 22, 23  # since Linux 5.14
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_PRESENT, _OF_FILE = 1 << 63, 1 << 61  # of an entry of /proc/pid/pagemap


def mapped_pages() -> List[Run]:
    """Those that are mapped from files, and those that the process has written and may write again.

    Raises OSError where the kernel does not tell.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return [run for line in lines for run in _runs(line, pagemap.fileno())]


def prefault(pages: List[Run]) -> None:
    """Map those of files, and copy those that are shared with another process."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    refused = [run for run in pages if madvise(*run)]
    if any(how == POPULATE_READ for _, _, how in refused):
        _read(pages)


def _runs(line: str, pagemap: int) -> Iterator[Run]:
    """The pages of a mapping, by its line: addresses, permissions, offset, device, inode, path."""
    addresses, permissions = line.split(None, 2)[:2]
    begin, end = (int(part, 16) for part in addresses.split("-"))
    if begin >> 63 or not permissions.startswith("r"):  # the kernel's own, or not to be touched
        return
    entries = array.array("Q")
    entries.frombytes(
        os.pread(pagemap, (end - begin) // _PAGE_BYTES * _ENTRY_BYTES, begin // _PAGE_BYTES * _ENTRY_BYTES)
    )
    is_own = permissions[1] == "w" and permissions[3] == "p"
    for kind, group in groupby(entry & (_PRESENT | _OF_FILE) for entry in entries):
        address, begin = begin, begin + sum(_PAGE_BYTES for _ in group)
        if kind == _PRESENT | _OF_FILE:
            yield address, begin - address, POPULATE_READ
        elif kind == _PRESENT and is_own:
            yield address, begin - address, POPULATE_WRITE


def _read(pages: List[Run]) -> None:
    """A byte of each page of a file; one that cannot be read is left to its own fault."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for first, size, how in pages:
            with suppress(OSError):
                for address in range(first, first + size if how == POPULATE_READ else first, _PAGE_BYTES):
                    os.pread(memory.fileno(), 1, address)
