"""`suite sizes`: one line a size in a pipe, notes on lines of their own where a terminal is narrow."""

from __future__ import annotations

import pytest

from suite.report.formatting import width
from tests.command import suite


def test_at_80_columns_a_note_has_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = suite("sizes").stdout
    monkeypatch.setattr(width, "terminal_columns", lambda: 80)
    narrow = suite("sizes").stdout
    assert not [line for line in narrow.splitlines() if len(line) > 80]
    assert narrow.split() == wide.split(), "the same words, none of them broken"
    note = "ffn is four times the hidden width here; 1.3B-trlx has 3072"
    assert f"\n    {note}\n" in narrow and f"50257  {note}\n" in wide
