"""The suite's own version, as the worker carries it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def suite_version() -> str:
    """Version of the installed package; ``0+source`` when run from a checkout that was never installed."""
    try:
        return version("suite")
    except PackageNotFoundError:
        return "0+source"
