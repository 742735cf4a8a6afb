"""What tells a package from another of the same version: its own code.

The driver has a stack's interpreter run this text (``suite.launch.probe``), so it needs nothing of the suite.
"""

import hashlib
import json
import os
import subprocess
import sys
from functools import lru_cache
from importlib import metadata, util
from typing import Any, Dict, Iterator, Optional, Tuple

#: What Python runs, and what stacks compile when they first need it. Headers of torch alone are 9,000 files.
_CODE = (".py", ".so", ".cu", ".cuh", ".cpp")
#: Of a library beyond two such parts the first and the last are read: the build's own id lies there.
_PART_BYTES = 1 << 21


@lru_cache(maxsize=None)
def identity(package: str) -> Optional[Dict[str, Any]]:
    """``digest`` of all code in the folders where an import of the package finds it; ``commit`` that it was installed
    from, or of its checkout, whose files are ``changed`` or not; ``editable``: it lies outside of installed packages.

    None where the package is not installed or has no folder. Raises OSError where one cannot be read.
    """
    try:
        found = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    folders = sorted(_folders(package, found))
    parts = ["{} {}".format(os.path.basename(folder), package_digest(folder, _CODE)) for folder in folders]
    above = [os.path.dirname(folder) for folder in folders]
    above += [os.path.dirname(folder) for folder in above]
    checkout = next((folder for folder in above if os.path.exists(os.path.join(folder, ".git"))), None)
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    commit, changed = _commit(checkout) if checkout else (origin.get("vcs_info", {}).get("commit_id"), False)
    installed = os.path.realpath(str(found.locate_file("")))
    outside = any(os.path.commonpath([installed, folder]) != installed for folder in folders)
    told = {"digest": hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16], "commit": commit, "changed": changed}
    return {**told, "editable": outside or checkout is not None} if folders else None


def _folders(package: str, found: Any) -> Iterator[str]:
    listed = {each.parts[0] for each in found.files or () if each.suffix == ".py" and len(each.parts) > 1}
    names = set((found.read_text("top_level.txt") or "").split()) or {each for each in listed if each.isidentifier()}
    for name in names or {package.replace("-", "_")}:
        spec = util.find_spec(name)
        yield from map(os.path.realpath, (spec and spec.submodule_search_locations) or ())


def package_digest(folder: str, endings: Tuple[str, ...] = (".py",)) -> str:
    """SHA-256 over the paths and contents of all files below ``folder`` with these endings, in order of path.

    Raises OSError where one cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(_files(folder, endings)):
        with open(os.path.join(folder, path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update("{} {}\n".format(path, size).encode())
            digest.update(file.read(2 * _PART_BYTES))
            if size > 2 * _PART_BYTES:
                file.seek(-_PART_BYTES, os.SEEK_END)
                digest.update(file.read())
    return digest.hexdigest()


def _files(folder: str, endings: Tuple[str, ...]) -> Iterator[str]:
    for path, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__" and name[0] != "."]
        yield from (os.path.relpath(os.path.join(path, name), folder) for name in names if name.endswith(endings))


def _refuse(error: OSError) -> None:
    """What ``os.walk`` would leave out without a word."""
    raise error


def _commit(checkout: str) -> Tuple[Optional[str], bool]:
    """The commit of a checkout, and whether files that it knows were changed; None where git does not tell."""
    try:
        commit, changes = (
            subprocess.run(("git", "-C", checkout, *words), stdout=subprocess.PIPE, check=True, timeout=20).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return None, False
    return commit.decode().strip(), bool(changes)


if __name__ == "__main__":
    print(json.dumps({package: identity(package) for package in sys.argv[1:]}))
