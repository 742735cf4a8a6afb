"""The entry point: what comes of Ctrl-C before there is a command."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from suite.cli.main import main


class Importing(ModuleType):
    """A module in whose import Ctrl-C is pressed."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("module", ["suite.cli.streams", "suite.cli.app"])
def test_ctrl_c_while_modules_are_imported_is_one_line_and_130(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, Importing(module))
    monkeypatch.setattr(sys, "argv", ["suite", "run", "--size", "1M"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "error: interrupted\n")
