"""Fixtures of the commands' tests."""

from tests.conduct.conftest import script

__all__ = ["script"]
