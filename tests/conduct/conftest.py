"""The scripted worker in the place of both engines, and a narrow terminal."""

import json
import sys
from collections.abc import Callable

import pytest

from tests.scripted_suite import use_scripted_worker


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Both engines are the scripted worker, on a stack that needs no looking for; called, it says what that does."""
    use_scripted_worker(monkeypatch.setattr)
    return lambda **fields: monkeypatch.setenv("SUITE_SCRIPT", json.dumps(fields))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Standard output is a terminal of 80 columns from the call on: a test's output is captured anew after set-up."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    return lambda: monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
