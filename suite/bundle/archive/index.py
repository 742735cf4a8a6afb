"""The index of an archive: what is in it, the digest of each file, and what was taken out of it."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, ValidationError

from suite.bundle.files import DamagedBundle, first_line, parse_object, text_of
from suite.bundle.walk import STUDY
from suite.spec.base import Frozen, UsageError
from suite.spec.schema_files import not_read

ARCHIVE_SCHEMA: Literal["suite/archive/1"] = "suite/archive/1"
INDEX, SIGNATURE = "suite-archive.json", "suite-archive.json.sig"
#: Folders of an archive: results as they lay in their folder, texts of licences, lists of what images hold.
RUNS, LICENCES, SBOMS = "runs", "licences", "sboms"
#: The one hidden name that a results folder has: what was handed to a cluster.
SUBMITTED = ".submitted"
_LONGEST_NAME, _LONGEST_PART, _DEEPEST = 1024, 255, 16
_SHA256 = r"^[0-9a-f]{64}$"


class PackedFile(Frozen):
    """A file of the archive but the index itself and its signature."""

    path: str
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=_SHA256)


class PackedRun(Frozen):
    """A run of the archive. ``verified``: what `suite verify` said of its bundle before it was packed."""

    path: str = Field(description="below the folder runs/ of the archive")
    id: str
    digest: str | None = Field(description="of the bundle as it lies in the archive; null where it has none")
    digest_before: str | None = Field(
        default=None, description="of the bundle before identity was scrubbed from it; null where nothing was"
    )
    verified: str


class LeftOut(Frozen):
    """A run of the folder that is not in the archive, and why."""

    path: str
    reason: str


class Scrubbed(Frozen):
    """Of one kind of identity, how many different ones there were, and in how many places."""

    distinct: int = Field(ge=0)
    places: int = Field(ge=0)


class Index(Frozen):
    """The file ``suite-archive.json``. Its own bytes are what a signature is of."""

    schema_: Literal["suite/archive/1"] = Field(default=ARCHIVE_SCHEMA, alias="schema")
    suite_version: str
    packed: Literal["folder", "bundle"] = Field(description="whether a results folder or a single bundle was packed")
    identity: Literal["scrubbed", "kept"]
    scrubbed: dict[str, Scrubbed] = Field(default={}, description="by kind")
    digest: str | None = Field(description="over all bundles of the archive, as `suite verify` prints it")
    runs: tuple[PackedRun, ...]
    left_out: tuple[LeftOut, ...] = ()
    licences: tuple[str, ...] = Field(default=(), description="paths of files of the archive")
    sboms: tuple[str, ...] = Field(default=(), description="paths of CycloneDX lists of what images hold")
    files: tuple[PackedFile, ...]


def written_index(index: Index) -> bytes:
    """The bytes of the index, the same for the same content."""
    return (index.model_dump_json(by_alias=True, indent=1) + "\n").encode()


def parse_index(data: bytes, archive: str) -> Index:
    """The index that ``data`` holds; each of its files has a place. Raises UsageError."""
    try:
        body = parse_object(text_of(data, INDEX), INDEX)
        if body.get("schema") != ARCHIVE_SCHEMA:
            raise UsageError(not_read(archive, body.get("schema"), ARCHIVE_SCHEMA, body.get("suite_version")))
        index = Index.model_validate_json(data)
    except ValidationError as error:
        raise UsageError(f"{archive}: {INDEX}: {first_line(error)}") from error
    except DamagedBundle as error:
        raise UsageError(f"{archive}: {error}") from error
    names, runs = [file.path for file in index.files], [f"{RUNS}/{run.path}" for run in index.runs]
    require_names(runs, archive)
    known = set(runs)
    foreign = {*index.licences, *index.sboms}.difference(names)
    foreign.update(name for name in names if not _has_a_place(name.split("/"), known))
    for name in sorted(foreign):
        raise UsageError(f"{archive}: {INDEX} names {shown_name(name)}, which belongs to none of its runs")
    return index


def _has_a_place(parts: list[str], runs: set[str]) -> bool:
    """Whether a file is of a run, a submission or a study, or is a licence or a list."""
    if len(parts) == 1 or parts[0] != RUNS:
        return len(parts) > 1 and parts[0] in (LICENCES, SBOMS)
    if parts[-1] == STUDY or (len(parts) > 2 and parts[-2] == SUBMITTED and parts[-1].endswith(".json")):
        return True
    return any("/".join(parts[:depth]) in runs for depth in range(2, len(parts)))


def require_names(names: Iterable[str], archive: str) -> None:
    """Raises UsageError unless each can be a file's path below any folder, and no two are the same on any system."""
    seen: set[str] = set()
    folders: set[str] = set()
    for name in names:
        if not _is_safe(name):
            raise UsageError(
                f"{archive}: {shown_name(name)} is no path that is packed: those are relative, printable, composed "
                f"(NFC), not hidden, at most {_DEEPEST} folders deep and {_LONGEST_PART} bytes in each"
            )
        folded = unicodedata.normalize("NFC", name.casefold())
        if folded in seen:
            raise UsageError(f"{archive}: {shown_name(name)} is there twice, or differs from another in case alone")
        seen.add(folded)
        parts = folded.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    both = next(iter(seen & folders), None)
    if both is not None:
        raise UsageError(f"{archive}: {shown_name(both)} is both a file and a folder")


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return (
        name.isprintable()
        and "\\" not in name
        and not re.match("[A-Za-z]:", name)
        and unicodedata.normalize("NFC", name) == name
        and all(part and (part == SUBMITTED or not part.startswith(".")) for part in parts)
        and len(parts) <= _DEEPEST
        and max(len(part.encode()) for part in parts) <= _LONGEST_PART
        and len(name.encode()) <= _LONGEST_NAME
    )


def shown_name(name: str) -> str:
    """A path of somebody else in a message."""
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:117]}..."


def scrubbed_line(index: Index) -> str:
    """What was taken out before it was packed, by whoever packed it."""
    if index.identity == "kept":
        return "identity: kept, as it was asked for"
    if not index.scrubbed:
        return "identity: nothing was found that had to be scrubbed"
    kinds = []
    for kind, found in index.scrubbed.items():
        number = f"{found.distinct} " if found.distinct else ""
        kinds.append(f"{number}{kind} in {found.places} place{'s' * (found.places != 1)}")
    return f"identity: scrubbed {', '.join(kinds)}"
