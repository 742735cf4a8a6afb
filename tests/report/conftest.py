"""What several tests of views stand on."""

import re
from collections.abc import Callable

import pytest

#: Lines of what something prints on a terminal of so many columns; None: into a pipe.
Columns = Callable[[int | None, Callable[[], None]], list[str]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Columns:
    """Without colours and empty lines."""

    def printed(count: int | None, show: Callable[[], None]) -> list[str]:
        if count is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", str(count))
        show()
        plain = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        return [line.rstrip() for line in plain.splitlines() if line.strip()]

    return printed
