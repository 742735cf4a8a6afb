"""One digest over all that a bundle holds: whoever kept it can tell whether the bundle is still what was published.

It is the SHA-256 of the list that ``sha256sum`` prints of the bundle's files in the order of their paths' bytes, so
nobody needs the suite to check it (docs/evidence.md has the command). A hash binds the length of its file too.
"""

import hashlib
import os
import re
from collections.abc import Iterable

from suite.bundle.files import DamagedBundle, open_plain
from suite.bundle.record import Evidence
from suite.bundle.store import DOCUMENTS, Bundle
from suite.bundle.walk import NO_EVIDENCE
from suite.spec.base import UsageError

#: More than any run leaves; what is beyond is not read.
MOST_BYTES, MOST_FILES, _DEEPEST = 4 << 30, 1 << 20, 8
#: From here on records name their evidence.
_DERIVATION = 3
#: Of a bundle that is derived from what was hashed; the files of a larger one are read twice, one after the other.
_HELD_BYTES = 32 << 20


class TooMuchEvidence(DamagedBundle):
    """More files or bytes than are hashed."""


def digest_of(bundle: Bundle) -> str:
    """SHA-256 over the list of the bundle's files, 64 hexadecimal digits. Raises TooMuchEvidence, and DamagedBundle for
    a link, a pipe or another special file, and a name that such a list cannot hold."""
    return read_once(bundle)[0].digest


def digest_if_any(bundle: Bundle) -> str | None:
    """As ``digest_of``; null for a bundle that has none."""
    try:
        return digest_of(bundle)
    except DamagedBundle:
        return None


def read_once(bundle: Bundle) -> tuple[Evidence, Bundle]:
    """The digest and of how many files it is, with the bundle to derive from the very bytes that were hashed: no file
    is opened twice. Raises as ``digest_of``."""
    names, folder = evidence_files(bundle), os.fspath(bundle.path)
    listed, held, most_held = hashlib.sha256(), {}, _HELD_BYTES
    for name in names:
        most = most_held if name in DOCUMENTS or name.startswith("events/") else 0
        digest, content = _hashed(f"{folder}/{name}", name, most)
        if content is not None:
            held[name] = content
            most_held -= len(content)
        listed.update(f"{digest}  {name}\n".encode())
    return Evidence(digest=listed.hexdigest(), files=len(names)), Bundle(bundle.path, held)


def evidence_files(bundle: Bundle) -> list[str]:
    """Paths of the files of evidence, with slashes, by their bytes. Raises as ``digest_of``."""
    root, found = os.fspath(bundle.path), list[str]()
    waiting, total = [""], 0
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(f"{root}/{prefix}") as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    # names that sha256sum would write in another way than they are would make another list
                    if not entry.name.isprintable() or "\\" in entry.name:
                        shown = f"{prefix}{ascii(entry.name)[:80]}"
                        raise DamagedBundle(f"{shown} is not a name of a file that a bundle has")
                    name = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{name}/")
                    elif name not in NO_EVIDENCE:
                        total += entry.stat(follow_symlinks=False).st_size
                        found.append(name)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise DamagedBundle(f"{prefix or 'the bundle'} cannot be read: {why}") from error
        if prefix.count("/") > _DEEPEST:
            raise DamagedBundle(f"{prefix} is more than {_DEEPEST} folders deep")
        if total > MOST_BYTES or len(found) + len(waiting) > MOST_FILES:
            known = f"{len(found)} files of {total} bytes"
            raise TooMuchEvidence(f"the bundle has {known}, more than the {MOST_FILES} of {MOST_BYTES} that are hashed")
    return sorted(found, key=os.fsencode)


def recorded_evidence(bundle: Bundle, rules: int, known: Evidence | None = None) -> Evidence | None:
    """What a record names: nothing by older rules, and of more than is hashed. ``known``: the bundle's, where it was
    hashed already. Raises DamagedBundle as ``digest_of``."""
    try:
        return known or read_once(bundle)[0] if rules >= _DERIVATION else None
    except TooMuchEvidence:
        return None


def digest_of_all(digests: Iterable[str]) -> str:
    """One digest over several bundles: SHA-256 of theirs, sorted, one a line; of one bundle it is its own."""
    ordered = sorted(digests)
    if len(ordered) == 1:
        return ordered[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in ordered).encode()).hexdigest()


def checked_digest(text: str) -> str:
    """A digest as somebody typed it. Raises UsageError for what is none."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise UsageError(f"a digest is 64 hexadecimal digits, not {text[:80]!r}")
    return text.lower()


def _hashed(path: str, name: str, most_held: int) -> tuple[str, bytes | None]:
    """Its SHA-256, and its content where that is no more than ``most_held`` bytes."""
    try:
        with open_plain(path, name, MOST_BYTES) as file:
            content = file.read(min(most_held, os.fstat(file.fileno()).st_size) + 1)
            digest = hashlib.sha256(content)
            if len(content) <= most_held:
                return digest.hexdigest(), content
            return hashlib.file_digest(file, lambda: digest).hexdigest(), None  # type: ignore[arg-type]
    except FileNotFoundError as error:
        raise DamagedBundle(f"{name} is gone while the bundle is read") from error
    except OSError as error:
        raise DamagedBundle(f"{name} cannot be read: {(error.strerror or str(error)).lower()}") from error
