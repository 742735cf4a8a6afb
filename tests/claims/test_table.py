"""Files that tables are read from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suite.claims.table import read_table
from suite.spec.base import UsageError


def test_a_pipe_or_a_device_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "endless.csv"):
        with pytest.raises(UsageError, match="is not a regular file"):
            read_table(tmp_path / name)
