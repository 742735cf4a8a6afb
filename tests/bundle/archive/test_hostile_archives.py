"""Archives that nobody should open: each is refused in one line, and nothing is written."""

import hashlib
import io
import json
import random
import stat
import struct
import tempfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.bundle.archive.opening import read_archive, unpack_into
from suite.bundle.archive.packing import Packing, pack
from suite.spec.base import UsageError
from tests.bundle.tampering import copied, shipped
from tests.command import suite

Files = dict[str, bytes]
INDEX = "suite-archive.json"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("packed")
    copied(shipped("deepspeed-3M-n1"), folder / "runs")
    pack(folder / "runs", folder / "good.suite.zip", Packing())
    return (folder / "good.suite.zip").read_bytes()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands are run; temporary folders are made in ``temporary`` there."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_of(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def entry(name: str, mode: int = stat.S_IFREG | 0o644, method: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    made.create_system, made.external_attr, made.compress_type = 3, mode << 16, method
    return made


def zipped(files: Files, *more: tuple[zipfile.ZipInfo, bytes], comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.comment = comment
        for name, data in files.items():
            archive.writestr(entry(name), data)
        for info, data in more:
            archive.writestr(info, data)
    return out.getvalue()


def listed(files: Files, **changes: bytes) -> Files:
    """With an index that names these further files, as one who makes a hostile archive would write it."""
    index = json.loads(files[INDEX])
    for name, data in changes.items():
        index["files"] = [each for each in index["files"] if each["path"] != name]
        index["files"].append({"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    return {**files, INDEX: json.dumps(index).encode(), **changes}


def with_file(name: str, data: bytes = b"x") -> Callable[[Files], bytes]:
    return lambda files: zipped(listed(files, **{name: data}))


def run_of(files: Files) -> str:
    return json.loads(files[INDEX])["runs"][0]["path"]


def with_entry(mode: int, data: bytes = b"/etc/passwd") -> Callable[[Files], bytes]:
    def make(files: Files) -> bytes:
        name = f"runs/{run_of(files)}/logs/other.log"
        named = listed(files, **{name: data})
        del named[name]
        return zipped(named, (entry(name, mode), data))

    return make


def bomb(files: Files) -> bytes:
    return with_file(f"runs/{run_of(files)}/logs/zeros.log", bytes(32 << 20))(files)


def patched(files: Files, form: str, in_file: int, in_directory: int, *values: int) -> bytes:
    """With other values in both headers of the last entry, at these places of them."""
    data = bytearray(zipped(files))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        last = archive.infolist()[-1]
    for at in (last.header_offset + in_file, data.rfind(b"PK\1\2") + in_directory):
        struct.pack_into(form, data, at, *values)
    return bytes(data)


def bomb_that_lies(files: Files) -> bytes:
    """Its unpacked size and its sum are those of a hundred bytes, its stream is not."""
    name, told = f"runs/{run_of(files)}/logs/zeros.log", b"x" * 100
    zeros = {**listed(files, **{name: told}), name: bytes(64 << 20)}
    with zipfile.ZipFile(io.BytesIO(zipped(zeros))) as archive:
        packed = archive.infolist()[-1].compress_size
    return patched(zeros, "<3L", 14, 16, zlib.crc32(told), packed, len(told))


def twice(files: Files) -> bytes:
    name = f"runs/{run_of(files)}/manifest.json"
    with warnings.catch_warnings(action="ignore"):
        return zipped(files, (entry(name), b"{}"))


def other_content(files: Files) -> bytes:
    name = f"runs/{run_of(files)}/manifest.json"
    changed = bytearray(files[name])
    changed[-3] ^= 1
    return zipped({**files, name: bytes(changed)})


def flagged(flag: int) -> Callable[[Files], bytes]:
    """With a bit set in the flags of the last entry."""
    return lambda files: patched(files, "<H", 6, 8, flag)


def many(files: Files) -> bytes:
    """A directory that speaks of more files than any results have."""
    data = bytearray(zipped(files))
    struct.pack_into("<2H", data, len(data) - 14, 0xFFFF, 0xFFFF)
    end = len(data) - 22
    size, offset = struct.unpack_from("<2L", data, len(data) - 10)
    end_64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 40, 1 << 40, size, offset)
    return bytes(data[:end]) + end_64 + struct.pack("<4sLQL", b"PK\6\7", 0, end, 1) + bytes(data[end:])


def in_two_ways(files: Files) -> bytes:
    """The name in front of the content is not the one in the directory."""
    data = bytearray(zipped(files))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        last = archive.infolist()[-1]
    data[last.header_offset + 30] ^= 1
    return bytes(data)


def newer(files: Files) -> bytes:
    index = json.loads(files[INDEX])
    index.update(schema="suite/archive/2", suite_version="9.0")
    return zipped({**files, INDEX: json.dumps(index).encode()})


NO_PATH, OTHER_FORM = "is no path that is packed", "is not a regular file in the form that suite pack writes"
OTHER_END = "or damaged: it does not end as one with these files"
HOSTILE: dict[str, tuple[Callable[[Files], bytes], str]] = {
    "a path out of the folder": (with_file("runs/../../escaped"), NO_PATH),
    "an absolute path": (with_file("/tmp/escaped"), NO_PATH),
    "a path of Windows": (with_file("C:/escaped"), NO_PATH),
    "a backslash": (with_file("runs\\..\\escaped"), NO_PATH),
    "a control character": (with_file("runs/a\x01b"), NO_PATH),
    "text that is shown backwards": (with_file("runs/a\u202etxt.json"), NO_PATH),
    "letters that are composed": (with_file("runs/e\u0301"), NO_PATH),
    "a hidden file": (with_file("runs/.bashrc"), NO_PATH),
    "a name in other case": (with_file("LICENCES/SUITE.txt"), "differs from another in case alone"),
    "a file that is a folder too": (with_file("licences/suite.txt/more"), "both a file and a folder"),
    "a name that is too long": (with_file("runs/" + "a" * 300), NO_PATH),
    "a name that is too deep": (with_file("runs/" + "a/" * 20 + "a"), NO_PATH),
    "a link": (with_entry(stat.S_IFLNK | 0o777), OTHER_END),
    "a device": (with_entry(stat.S_IFCHR | 0o666), OTHER_END),
    "a pipe": (with_entry(stat.S_IFIFO | 0o666), OTHER_END),
    "a folder": (lambda files: zipped(files, (entry("runs/x/", stat.S_IFDIR | 0o755), b"")), NO_PATH),
    "a bomb": (bomb, "taken for a bomb"),
    "a bomb with small sizes": (bomb_that_lies, "Bad CRC"),
    "a name twice": (twice, "twice"),
    "other content": (other_content, "is not what the index says"),
    "a file beside the index": (
        lambda files: zipped({**files, f"runs/{run_of(files)}/logs/more.log": b"x"}),
        "is not what the index says",
    ),
    "a file that is gone": (
        lambda files: zipped({name: data for name, data in files.items() if not name.endswith("rank-0.jsonl")}),
        "is not what the index says",
    ),
    "a file of no run": (with_file("runs/else/evil.sh"), "belongs to none of its runs"),
    "a file of nothing": (with_file("bin/evil.sh"), "belongs to none of its runs"),
    "an encrypted file": (flagged(1), OTHER_FORM),
    "a file with its sizes behind it": (flagged(8), OTHER_FORM),
    "another way of packing": (
        lambda files: zipped(
            {name: data for name, data in files.items() if name != "licences/suite.txt"},
            (entry("licences/suite.txt", method=zipfile.ZIP_LZMA), files["licences/suite.txt"]),
        ),
        OTHER_FORM,
    ),
    "a directory that speaks of more files": (many, OTHER_END),
    "two names of one file": (in_two_ways, OTHER_END),
    "cut short": (lambda files: zipped(files)[:-40], "is no archive of suite pack"),
    "half of it": (lambda files: zipped(files)[: len(zipped(files)) // 2], "is no archive of suite pack"),
    "a comment": (lambda files: zipped(files, comment=b"hello"), OTHER_END),
    "something in front": (lambda files: b"#!/bin/sh\n" + zipped(files), OTHER_END),
    "a ZIP of others": (lambda files: zipped({"readme.txt": b"hello"}), "is no archive of suite pack"),
    "an index that is no JSON": (lambda files: zipped({**files, INDEX: b"hello"}), "is not JSON"),
    "an index of other fields": (lambda files: zipped({**files, INDEX: b'{"schema":"suite/archive/1"}'}), "required"),
    "a later form": (newer, "reads suite/archive/1: install a newer one"),
    "an empty file": (lambda files: b"", "is no archive of suite pack"),
    "no ZIP": (lambda files: b"hello" * 1000, "is no archive of suite pack"),
}


@pytest.mark.parametrize(("make", "why"), HOSTILE.values(), ids=HOSTILE)
def test_it_is_refused_in_one_line_and_nothing_is_written(make, why, good, place):
    (place / "hostile.suite.zip").write_bytes(make(files_of(good)))
    for command in ("verify", "unpack"):
        done = suite(command, "hostile.suite.zip")
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
        assert why in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in place.iterdir()) == ["hostile.suite.zip", "temporary"]
    assert not list((place / "temporary").iterdir())


def test_every_byte_that_is_changed_is_found(good: bytes, place: Path) -> None:
    """In headers, names, streams and the directory; but for bytes that say nothing of the content."""
    unnoticed = []
    before = files_of(good)
    for at in range(0, len(good), max(len(good) // 200, 1)):
        (place / "changed.suite.zip").write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        root = place / f"{at}"
        root.mkdir()
        try:
            with read_archive(place / "changed.suite.zip") as reader:
                unpack_into(reader, root)
        except UsageError:
            continue
        found = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        if any(before[name] != data for name, data in found.items()) or len(found) != len(before) - 1:
            unnoticed.append(at)
    assert not unnoticed


def test_memory_is_bounded_by_blocks_not_by_files(good: bytes, place: Path) -> None:
    files = files_of(good)
    text = random.Random(1).randbytes(6_000_000)
    (place / "large.suite.zip").write_bytes(with_file(f"runs/{run_of(files)}/logs/large.log", text)(files))
    tracemalloc.start()
    (place / "root").mkdir()
    with read_archive(place / "large.suite.zip") as reader:
        unpack_into(reader, place / "root")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3_000_000
