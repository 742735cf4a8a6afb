"""Limits longer than the timers of an operating system can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.spec.bounds import MOST_SECONDS
from tests.launch.ranks import run


@pytest.mark.parametrize("seconds", [3_600_000.0, float(MOST_SECONDS)])
def test_a_limit_of_thousands_of_hours_is_waited_for_like_any_other(tmp_path: Path, seconds: float) -> None:
    ran = run(tmp_path, 'event("start")\nevent("end", status="ok")', run_seconds=seconds, silence_seconds=seconds)
    assert ran.outcome.status == "ok" and len(ran.events) == 2
