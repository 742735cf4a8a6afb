"""What inputs of every subject are made with: a folder for parsers that read a file, and texts as readers have them."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from suite.bundle.files import DamagedBundle
from suite.spec.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
TWO_RANKS = Layout(devices_per_node=2, data=2)


@cache
def folder() -> Path:
    """For parsers that read a file; gone with the process."""
    path = Path(tempfile.mkdtemp(prefix="suite-fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def text_of(data: bytes) -> str:
    """As a reader of the package has it."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedBundle("not UTF-8") from error


def in_file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def from_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A reader of inputs from one of a path."""
    return lambda data: read(in_file(name, data))
