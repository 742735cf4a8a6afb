"""The suite's own version, as the worker carries it."""

import runpy
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parents[1] / "worker" / "version.py"


@cache
def suite_version() -> str:
    """Version of this source, installed or not. The file is read, not imported: the worker belongs to the stack."""
    return runpy.run_path(str(_FILE))["__version__"]
