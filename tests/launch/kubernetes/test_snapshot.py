"""What was kept of a run on a cluster, whatever became of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.launch.kubernetes.snapshot import Snapshot, read_snapshot, write_snapshot
from suite.spec.base import UsageError


def test_what_was_kept_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    kept = Snapshot(run={"kind": "Job"}, pods=[{"a": 1}], warnings=["w"], logs={"pod": bytes(range(256))})
    write_snapshot(tmp_path / "kept.json", kept)
    assert read_snapshot(tmp_path / "kept.json") == kept
    assert read_snapshot(tmp_path / "none.json") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", '{"logs": []}', '{"logs": {"a": 1}}', "[" * 100_000, "\u00e9"])
def test_a_damaged_one_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "kept.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be used"):
        read_snapshot(tmp_path / "kept.json")
