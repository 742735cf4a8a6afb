"""`suite sizes`: one line a size in a pipe, notes on lines of their own where a terminal is narrow."""

from __future__ import annotations

import sys

import pytest

from suite.cli.sizes import sizes


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(BaseException) as ended:  # typer's Exit
        sizes(ladder=None, as_json=False)
    assert getattr(ended.value, "exit_code", None) == 0
    return capsys.readouterr().out


def test_at_80_columns_a_note_has_lines_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = shown(capsys)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    narrow = shown(capsys)
    assert not [line for line in narrow.splitlines() if len(line) > 80]
    assert narrow.split() == wide.split(), "the same words, none of them broken"
    note = "ffn is four times the hidden width here; 1.3B-trlx has 3072"
    assert f"\n    {note}\n" in narrow and f"50257  {note}\n" in wide
