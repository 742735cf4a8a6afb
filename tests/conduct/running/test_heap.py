"""What a driver freed goes back to the system between runs."""

from __future__ import annotations

import subprocess
import sys

#: Objects of 400 bytes, of which every hundredth stays: glibc gives none of the pages between them back by itself.
_PROGRAM = """
import psutil
from suite.conduct.running.ledger import give_back_freed

import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
libc.free.argtypes = (ctypes.c_void_p,)
blocks = [libc.malloc(400) for _ in range(200_000)]
for block in blocks:
    ctypes.memset(block, 1, 400)
for number, block in enumerate(blocks):
    if number % 100:
        libc.free(block)
before = psutil.Process().memory_info().rss
give_back_freed()
print((before - psutil.Process().memory_info().rss) >> 20)
"""


def test_pages_between_what_is_kept_go_back() -> None:
    """Of 76 MiB freed most; without the call none does."""
    done = subprocess.run((sys.executable, "-c", _PROGRAM), capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 40
