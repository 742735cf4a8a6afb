"""Numbers beyond any machine and whatever lies in the place of a file: told in a line, never read without end."""

import os
import socket
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from suite.cli.command import check_numbers, rank_counts
from suite.planner.ask import device_range
from suite.spec import typed
from suite.spec.base import UsageError
from suite.spec.foreign import Unreadable, lines_of, open_log, open_plain, read_bytes, read_part, read_text
from suite.spec.typed import MOST, MOST_BYTES, MOST_SECONDS, first_beyond

MANY = "9" * 400
seconds, size = partial(typed.seconds, "--budget"), partial(typed.size, "--memory")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((seconds, text) for text in (f"{MANY}h", "9" * 5000, "1000000h", "1" * 30 + "h", f"0.{MANY}h")),
        *((size, text) for text in (f"{MANY}g", "9" * 5000, "99999999t")),
        *((device_range, text) for text in ("9" * 5000, "9" * 5000 + "..1", "1.." + "9" * 5000)),
        *((lambda text: rank_counts([text], most=8), text) for text in ("9" * 5000, "1048577")),
    ],
)
def test_no_duration_no_size_no_range_and_no_number_of_ranks_overflows(read, text):
    with pytest.raises(UsageError) as caught:
        read(text)
    assert len(str(caught.value)) < 200 or read is device_range


def test_what_machines_have_is_read_as_before():
    assert (seconds("87600h"), size("1048576t")) == (MOST_SECONDS, MOST_BYTES)
    assert (seconds("1h30m"), size("1.5g"), typed.share("--margin", "2.5%")) == (5400, 3 << 29, 0.025)
    assert rank_counts(["1", "all", "4"], most=8) == (1, 8, 4), "all ranks are as many as there are places"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300, -1e300, 10**400, MOST + 1, [1, 10**400]])
def test_no_numeric_option_of_any_command_overflows(value):
    with pytest.raises(UsageError, match="--most-repeats is a number up to 281,474,976,710,656, not '") as caught:
        check_numbers({"price": 2.5, "most_repeats": value, "names": ["a"], "where": None, "switch": True})
    assert len(str(caught.value)) < 200


def test_the_path_to_a_number_is_told():
    assert first_beyond({"workload": {"critic": {"hidden": 10**400}}}) == ("workload", "critic", "hidden")
    assert first_beyond({"lengths": [1, 2, float("inf")]}) == ("lengths", "2")
    deep: Any = 1e300
    for _ in range(5000):
        deep = [deep]
    assert first_beyond(deep) is not None


GIB = 1 << 30


def traps(folder: Path) -> dict[Path, str]:
    """All that is no plain file, and what is to be said of it."""
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
    links = {folder / name: "is a symbolic link" for name in ("link", "endless", "itself")}
    return links | {folder / name: "is not a regular file" for name in ("pipe", "folder", "socket")}


def test_only_plain_files_are_opened(tmp_path):
    for path, words in traps(tmp_path).items():
        with pytest.raises(Unreadable, match=f"^it {words}$"):
            open_plain(path, "it", GIB)
        if path.name != "folder":
            with pytest.raises(Unreadable):
                open_log(path, path.name)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "none", "none", GIB)
    with pytest.raises(Unreadable, match="is not a path"):
        open_plain(Path("a\0b"), "a\0b", GIB)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_that_its_user_names_is_followed_to_a_plain_file_alone(tmp_path):
    traps(tmp_path)
    assert read_text(tmp_path / "link", "link", by_user=True) == "text"
    with pytest.raises(Unreadable, match=r"^it is not a regular file"):
        read_text(tmp_path / "endless", "it", by_user=True)


def test_no_more_is_read_than_was_agreed_also_of_a_file_that_grows(tmp_path):
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
    with pytest.raises(Unreadable, match="grows beyond the 100 bytes"):
        read_bytes(Path("/proc/self/maps"), "it", 100)  # which says that it has none


def test_a_log_is_appended_to(tmp_path):
    for text in (b"one", b"two"):
        descriptor = open_log(tmp_path / "log", "log")
        os.write(descriptor, text)
        assert os.get_blocking(descriptor)
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"onetwo"
