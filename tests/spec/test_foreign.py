"""Whatever lies in the place of a file that others wrote: told in a line, never waited for or read without end."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from suite.spec.foreign import Unreadable, lines_of, open_log, open_plain, read_bytes, read_part, read_text

GIB = 1 << 30


def traps(folder: Path) -> dict[str, Path]:
    """Everything that is no plain file, by what is to be said of it."""
    (folder / "file").write_text("text")
    (folder / "link").symlink_to(folder / "file")
    (folder / "endless").symlink_to("/dev/zero")
    (folder / "itself").symlink_to(folder / "itself")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    here = os.getcwd()
    os.chdir(folder)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    os.chdir(here)
    return {name: folder / name for name in ("link", "endless", "itself", "pipe", "folder", "socket")}


SAID = {"link": "is a symbolic link", "endless": "is a symbolic link", "itself": "is a symbolic link"}


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    for name, path in traps(tmp_path).items():
        with pytest.raises(Unreadable) as caught:
            open_plain(path, f"the {name}", GIB)
        assert str(caught.value) == f"the {name} {SAID.get(name, 'is not a regular file')}"
        if name != "folder":
            with pytest.raises(Unreadable):
                open_log(path, name)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "none", "none", GIB)
    with pytest.raises(Unreadable, match="is not a path"):
        open_plain(Path("a\0b"), "a\0b", GIB)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_that_its_user_names_is_followed_to_a_plain_file_alone(tmp_path: Path) -> None:
    traps(tmp_path)
    assert read_text(tmp_path / "link", "link", by_user=True) == "text"
    with pytest.raises(Unreadable, match=r"^it is not a regular file"):
        read_text(tmp_path / "endless", "it", by_user=True)


def test_no_more_is_read_than_was_agreed(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.write(b"first")
        file.seek(6 * GIB)
        file.write(b"last\n")
    with pytest.raises(Unreadable, match=f"it has {6 * GIB + 5} bytes, more than the 100 that are read"):
        read_bytes(sparse, "it", 100)
    assert read_part(sparse, "it", 0, 5) == b"first"
    assert read_part(sparse, "it", -5, 100) == b"last\n"
    assert read_part(sparse, "it", 7 * GIB, 100) == b""
    with open_plain(sparse, "it", None) as file:
        lines = lines_of(file, 1000)
        assert [len(next(lines)) for _ in range(3)] == [1000] * 3


def test_a_file_that_grows_while_it_is_read_is_not_read_without_end() -> None:
    with pytest.raises(Unreadable, match="grows beyond the 100 bytes"):
        read_bytes(Path("/proc/self/maps"), "it", 100)  # which says that it has none


def test_text_is_utf_8(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"ab\xff")
    with pytest.raises(Unreadable, match="it is not UTF-8 text at byte 2"):
        read_text(tmp_path / "file", "it")


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        descriptor = open_log(tmp_path / "log", "log")
        os.write(descriptor, text)
        assert os.get_blocking(descriptor)
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"onetwo"
