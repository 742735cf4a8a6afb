"""The archive in which a container's files come."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from functools import cache
from random import Random

from suite.launch.docker.copying import extract
from tests.fuzz import mutate
from tests.fuzz.material import folder


@cache
def archives() -> list[bytes]:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (
            ("events/rank-0.jsonl", tarfile.REGTYPE),
            ("events/rank-1.jsonl", tarfile.SYMTYPE),
            ("events/../x", tarfile.REGTYPE),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 5 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"{}\n{}"))
    return [out.getvalue().rstrip(b"\0") + b"\0" * 1024]


def make_archive(random: Random) -> bytes:
    return mutate.raw(random.choice(archives()), random)


def read_archive(data: bytes) -> None:
    target = folder() / "events"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    extract((data[start : start + 512] for start in range(0, len(data), 512)), target)
    for path in target.iterdir():
        assert re.fullmatch(r"rank-\d{1,7}\.jsonl", path.name) and path.is_file() and not path.is_symlink()
