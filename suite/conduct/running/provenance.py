"""Where a run comes from: the driver's version and commit, the host, the job as it was started, and whose it is.

That a manifest was made by this user on this machine a bundle can prove and nobody else can forge: a user has a key in
the folder of ``suite.bundle.cache.place``, under which ``environment.json`` gets a code of the manifest.
"""

import hashlib
import hmac
import os
import platform
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import suite
from suite.bundle.cache.place import cache_folder, is_own
from suite.launch.job import Job
from suite.launch.probe import host_facts
from suite.spec.manifest import Manifest
from suite.spec.redaction import public_variables, without_secrets_in
from suite.spec.version import suite_version


def driver_facts(launcher: Any, job: Job, bundle: str) -> dict[str, Any]:
    """What ``environment.json`` holds. A bundle is meant to be published: variables that hold a secret, by name or by
    value, are left out, and so is any secret in another text. Of paths it tells the interpreter's alone."""
    argv = [part.replace(bundle, ".") for part in job.argv]
    own = public_variables({name: value for name, value in job.env.items() if name != "PYTHONPATH"})
    facts = {
        **launcher.facts(job),
        "launcher": launcher.name,
        "suite_version": suite_version(),
        "git_commit": git_commit(),
        "interpreter": argv[0],
        "driver_python": platform.python_version(),
        "job": {
            "argv": [Path(argv[0]).name, *argv[1:]],
            "env": own,
            "nodes": job.nodes,
            "ranks_per_node": job.ranks_per_node,
            "limits": job.limits.model_dump(mode="json"),
        },
        "host": host_facts(),
    }
    return without_secrets_in(facts)


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Commit of the checkout that the suite runs from, ``+changes`` when files differ; ``None`` outside a checkout."""
    from suite.images.project import Project

    root = Path(next(iter(suite.__path__))).resolve().parent
    return Project(root).revision() if (root / ".git").exists() else None


#: What ``environment.json`` calls it.
FIELD = "origin"
_FILE, _KEY_BYTES = "origin.key", 32


def origin_of(manifest: Manifest) -> dict[str, str]:
    """The fact for ``environment.json``; empty where no key can be kept, as without a home."""
    key = _key(make=True)
    return {} if key is None else {FIELD: _code(key, manifest)}


def is_from_here(manifest: Manifest, facts: Mapping[str, Any] | None) -> bool:
    """Whether this user recorded the manifest here; ``facts``: of the ``environment.json`` beside it."""
    told, key = (facts or {}).get(FIELD), _key(make=False)
    if key is None or not isinstance(told, str):
        return False
    return hmac.compare_digest(told.encode(errors="replace"), _code(key, manifest).encode())


def _code(key: bytes, manifest: Manifest) -> str:
    """Of the whole manifest: its hash, which covers all but ``run``, and ``run``."""
    text = f"{manifest.hash}\n{manifest.run.model_dump_json()}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The user's key; null where there is none, or its file is not the user's alone."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / _FILE
    if make and not path.exists():
        with suppress(OSError):
            _make(path)
    key = b""
    with suppress(OSError):
        key = path.read_bytes() if is_own(path, stat.S_ISREG) else b""
    return key if len(key) == _KEY_BYTES else None


def _make(path: Path) -> None:
    """Whole or not at all, and only once, however many drivers begin at the same time."""
    draft = path.with_name(f".{_FILE}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
