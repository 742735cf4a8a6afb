"""The scripted worker in the place of both engines."""

import json
from collections.abc import Callable

import pytest

from tests.scripted_suite import use_scripted_worker


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Both engines are the scripted worker, on a stack that needs no looking for; called, it says what that does."""
    use_scripted_worker(monkeypatch.setattr)
    return lambda **fields: monkeypatch.setenv("SUITE_SCRIPT", json.dumps(fields))
