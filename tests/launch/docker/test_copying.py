"""What is taken out of a container: the ranks' files under their names, and nothing that a hostile archive holds."""

import io
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from suite.launch.docker.session import extract, put_bundle
from suite.spec.foreign import Unreadable


def archive(*entries: tuple[str, bytes | str | None], kind: bytes = tarfile.SYMTYPE) -> bytes:
    """A tar of files (bytes), links (text: their target, of ``kind``) and folders (None)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type, entry.linkname = kind, content
            else:
                entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def taken(data: bytes, root: Path, part: str = "events", piece: int = 700) -> dict[str, bytes]:
    folder = root / part
    folder.mkdir(exist_ok=True)
    extract((data[start : start + piece] for start in range(0, len(data), piece)), folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name",
    [
        *("events/driver.jsonl", "events/../../rank-0.jsonl", "../events/rank-0.jsonl", "/events/rank-0.jsonl"),
        *("events/rank-0.jsonl/x", "logs/rank-0.log", "logs/container.log", "events/rank-0.sh", "events/rank--1.jsonl"),
        "manifest.json",
    ],
)
def test_no_other_name_is_written(tmp_path: Path, name: str) -> None:
    good = bytes(1000)  # in more than one piece
    assert taken(archive((name, b"evil"), ("events/rank-1.jsonl", good)), tmp_path) == {"rank-1.jsonl": good}
    assert [path.name for path in tmp_path.iterdir()] == ["events"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_devices_and_pipes_are_left_out(tmp_path: Path, kind: bytes) -> None:
    assert taken(archive(("events/rank-0.jsonl", "/etc/passwd"), kind=kind), tmp_path) == {}


def test_what_is_there_is_neither_replaced_nor_followed(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (events / "rank-0.jsonl").symlink_to(outside)
    (events / "rank-1.jsonl").write_text("seen")
    extract([archive(("events/rank-0.jsonl", b"evil"), ("events/rank-1.jsonl", b"evil"))], events)
    assert outside.read_text() == "mine" and (events / "rank-1.jsonl").read_text() == "seen"


def test_a_container_cannot_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.launch.docker.session.MOST_BYTES", 1000)
    with pytest.raises(Unreadable, match="more than"):
        taken(archive(("events/rank-0.jsonl", b"x" * 600), ("events/rank-1.jsonl", b"x" * 600)), tmp_path)
    monkeypatch.setattr("suite.launch.docker.session.MOST_FILES", 2)
    (tmp_path / "events" / "rank-0.jsonl").unlink()
    with pytest.raises(Unreadable, match="more than"):
        taken(archive(*((f"events/rank-{rank}.jsonl", b"") for rank in range(3))), tmp_path)


def test_what_is_put_in_belongs_to_the_runs_user(tmp_path: Path) -> None:
    for name in ("events", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    api = Mock()
    put_bundle(api, "c", "a-run", tmp_path, "12:34")
    ((_, path, data),) = (call.args for call in api.put_archive.call_args_list)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entries = {entry.name.removeprefix("a-run"): (entry.uid, entry.gid, entry.isdir()) for entry in tar}
    assert path == "/work/runs"
    folders = dict.fromkeys(("", "/events", "/logs"), (12, 34, True))
    assert entries == {**folders, "/manifest.json": (12, 34, False)}
