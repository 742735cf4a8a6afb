"""Pages of memory that a forked process would otherwise come by in the midst of its work.

Linux copies the page table of memory that a process has written to a child and lets faults fill that of files
(libraries, mostly); what was written is shared until one of the two writes again. A rank that imported its stack itself
has all of these pages as its own. A forked one takes them before it begins, so that its resident set is that of any
other rank and no iteration pays for a copy.
"""

import array
import ctypes
import os
from itertools import groupby
from typing import List, NamedTuple, Tuple

#: an address, and how many pages lie there one behind the other
Run = Tuple[int, int]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_PRESENT, _OF_FILE = 1 << 63, 1 << 61  # of an entry of /proc/pid/pagemap
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # madvise(2), since Linux 5.14


class Pages(NamedTuple):
    """Those that are mapped from files, and those that the process has written and may write again."""

    files: List[Run]
    own: List[Run]


def mapped_pages() -> Pages:
    """All that are mapped now. Raises OSError where the kernel does not tell."""
    found = Pages([], [])
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in lines:
            _add(found, line, pagemap.fileno())
    return found


def prefault(pages: Pages) -> None:
    """Map those of files, and copy those that are shared with another process."""
    _populate(pages.own, _POPULATE_WRITE)
    if not _populate(pages.files, _POPULATE_READ):
        _read(pages.files)


def _add(found: Pages, line: str, pagemap: int) -> None:
    """The pages of a mapping, by its line: addresses, permissions, offset, device, inode, path."""
    addresses, permissions = line.split(None, 2)[:2]
    begin, end = (int(part, 16) for part in addresses.split("-"))
    if begin >> 63 or not permissions.startswith("r"):  # the kernel's own, or not to be touched
        return
    count = (end - begin) // _PAGE_BYTES
    entries = array.array("Q")
    entries.frombytes(os.pread(pagemap, count * _ENTRY_BYTES, begin // _PAGE_BYTES * _ENTRY_BYTES))
    is_own = permissions[1] == "w" and permissions[3] == "p"
    index = 0
    for kind, group in groupby(entry & (_PRESENT | _OF_FILE) for entry in entries):
        run = (begin + index * _PAGE_BYTES, sum(1 for _ in group))
        index += run[1]
        if kind == _PRESENT | _OF_FILE:
            found.files.append(run)
        elif kind == _PRESENT and is_own:
            found.own.append(run)


def _populate(runs: List[Run], how: int) -> bool:
    """False where the kernel does not know how."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    refused = [run for run in runs if madvise(run[0], run[1] * _PAGE_BYTES, how)]
    return not refused


def _read(runs: List[Run]) -> None:
    """A byte of each page; one that cannot be read is left to its own fault."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        for address, pages in runs:
            for page in range(pages):
                try:
                    os.pread(memory, 1, address + page * _PAGE_BYTES)
                except OSError:
                    break
    finally:
        os.close(memory)
