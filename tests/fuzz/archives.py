"""Files of `suite pack`, texts from which identity is scrubbed, and the archive in which a container's files come."""

import io
import json
import re
import shutil
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from suite.bundle.archive.identity import Identities
from suite.bundle.archive.opening import read_archive, unpack_into
from suite.bundle.archive.packing import Packing, pack
from suite.bundle.archive.scrubbing import learn_json, scrub_json
from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.launch.docker.session import extract
from tests.bundle.archive.planted import LINES
from tests.fuzz import mutate
from tests.fuzz.material import folder
from tests.synthetic import make_bundle, synthetic_manifest

INDEX = "suite-archive.json"


@cache
def packed() -> bytes:
    """A valid archive of one small bundle."""
    with tempfile.TemporaryDirectory(prefix="suite-fuzz-") as place:
        path = make_bundle(Path(place) / "runs", synthetic_manifest(iterations=3, warmup=1))
        Bundle(path).write_record(derive(Bundle(path)))
        pack(Path(place) / "runs", Path(place) / "a.suite.zip", Packing())
        return (Path(place) / "a.suite.zip").read_bytes()


def make_packed(random: Random) -> bytes:
    """Other bytes, or another index in an archive that is whole."""
    if random.random() < 0.6:
        return mutate.raw(packed(), random)
    with zipfile.ZipFile(io.BytesIO(packed())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    index = json.loads(files[INDEX])
    if random.random() < 0.3:
        index["suite_version"] = mutate.text("1.0", random).encode(errors="replace").decode()
        files[INDEX] = json.dumps(index).encode()
        return _zipped(files, None)
    files[INDEX] = mutate.json_bytes(mutate.tree(index, random))
    return _zipped(files, random)


def _zipped(files: dict[str, bytes], random: Random | None) -> bytes:
    """With a random, some entries have another name or are no files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            mode = 0o100644
            if random is not None and random.random() < 0.05:
                name = mutate.text(name, random).encode(errors="replace").decode()[:9000]
                mode = random.choice((0o100644, 0o120777, 0))
            made = zipfile.ZipInfo(name)
            made.external_attr, made.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(made, data)
    return out.getvalue()


def read_packed(data: bytes) -> None:
    """Nothing is ever written but below the folder."""
    place = Path(tempfile.mkdtemp(prefix="suite-fuzz-"))
    try:
        (place / "a.suite.zip").write_bytes(data)
        (place / "root").mkdir()
        with read_archive(place / "a.suite.zip") as reader:
            unpack_into(reader, place / "root")
    finally:
        assert {path.name for path in place.iterdir()} <= {"a.suite.zip", "root"}
        shutil.rmtree(place)


def make_identity(random: Random) -> bytes:
    lines = [mutate.text(random.choice(LINES), random) for _ in range(random.randint(1, 6))]
    return "\n".join(lines).encode(errors="surrogatepass")


def read_identity(data: bytes) -> None:
    """What is scrubbed once has nothing more to scrub, and keeps what it was in JSON."""
    text = data.decode(errors="surrogatepass")
    names = Identities()
    facts: dict[str, Any] = {"host": text[:40], "notes": text.split("\n"), text[:20]: None}
    learn_json(facts, names)
    again = scrub_json(scrub_json(facts, names), names)
    assert len(again["notes"]) == len(facts["notes"])


@cache
def archives() -> list[bytes]:
    out, regular, link = io.BytesIO(), tarfile.REGTYPE, tarfile.SYMTYPE
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (("events/rank-0.jsonl", regular), ("events/rank-1.jsonl", link), ("events/../x", regular)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 5 if kind == regular else 0
            tar.addfile(entry, io.BytesIO(b"{}\n{}"))
    return [out.getvalue().rstrip(b"\0") + b"\0" * 1024]


def make_copied(random: Random) -> bytes:
    return mutate.raw(random.choice(archives()), random)


def read_copied(data: bytes) -> None:
    target = folder() / "events"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    extract((data[start : start + 512] for start in range(0, len(data), 512)), target)
    for path in target.iterdir():
        assert re.fullmatch(r"rank-\d{1,7}\.jsonl", path.name) and path.is_file() and not path.is_symlink()
