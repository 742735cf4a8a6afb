"""Packages that not everybody needs: imported when something is done with them, with one clear line where they lack."""

from importlib import import_module
from typing import Any

from suite.spec.base import UsageError


def required(module: str, extra: str) -> Any:
    """The module. Raises UsageError, which names the ``extra`` of the suite that brings it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        why = "is not installed" if getattr(error, "name", None) == package else f"cannot be imported ({error})"
        raise UsageError(f"{package} {why}: pip install 'rlhf-suite[{extra}]' brings it") from error
