"""Real trlx is in no package index: what needs its source is skipped, for one reason, where nobody names a checkout."""

from __future__ import annotations

import os

import pytest

from suite.worker.trainers.trlx.source import COMMIT, SOURCE_VARIABLE

NO_SOURCE = f"{SOURCE_VARIABLE} names no checkout of trlx at {COMMIT[:8]} (make test-trlx SOURCE=...)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where one is named, a source or an interpreter that does not do fails the tests."""
    if os.environ.get(SOURCE_VARIABLE):
        return
    for item in items:
        if item.get_closest_marker("trlx"):
            item.add_marker(pytest.mark.skip(reason=NO_SOURCE))
