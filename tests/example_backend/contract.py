"""What the package tests itself with, where it is installed: ``pytest contract.py``."""

from __future__ import annotations

from suite.testing import BackendContract


class TestExample(BackendContract):
    backend = "example-torch"
    ranks = 2


class TestExampleRay(BackendContract):
    backend = "example-ray"
    has_stack = False  # Ray is in an environment of its own
