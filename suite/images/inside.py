"""Asking an image what it holds: a short container without network and with a read-only root."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from suite.launch.docker.conclude import essence, runtime_failure
from suite.launch.docker.session import short_container
from suite.spec.base import Frozen, UsageError

if TYPE_CHECKING:
    from docker import APIClient

SBOM = "/opt/suite/sbom.cdx.json"
ANSWER_SECONDS = 120
_MOST_BYTES = 64 << 20
OWN_LABEL = "suite.check"

# Runs under both interpreters, of which the older is Python 3.8; the driver's asks the stack's.
LOOK = """
import json, os, platform, re, sys
from importlib.metadata import distributions
packages, commits = {}, {}
for one in distributions():
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
    if name not in packages:
        packages[name] = one.version
        origin = json.loads(one.read_text("direct_url.json") or "{}")
        commit = origin.get("vcs_info", {}).get("commit_id")
        if commit:
            commits[name] = commit
print(json.dumps({"python": platform.python_version(), "packages": packages, "commits": commits}))
"""
_ASK = """
import json, os, subprocess, sys
def look(python):
    try:
        done = subprocess.run((python, "-c", sys.argv[1]), capture_output=True, text=True)
    except OSError:
        return None
    return json.loads(done.stdout) if done.returncode == 0 else None
from suite.spec.version import suite_version
driver, stack = look(sys.executable), look("/opt/stack/bin/python")
print(json.dumps({"user": os.getuid(), "suite": suite_version(), "driver": driver, "stack": stack}))
"""


class Environment(Frozen):
    """What one interpreter of an image finds."""

    python: str
    packages: dict[str, str] = Field(description="normal name -> version")
    commits: dict[str, str] = Field(description="normal name -> commit, of what was installed from a repository")


class Inside(Frozen):
    """What an image reports of itself when it runs."""

    user: int = Field(description="user id of its processes")
    suite: str = Field(description="version of the suite")
    driver: Environment | None
    stack: Environment | None = Field(description="null: there is none, or its interpreter does not start")


def look_inside(api: APIClient, image: str) -> Inside:
    """Run a short container of the image. Raises UsageError where it gives no answer."""
    with _container(api, image, ["/opt/suite/bin/python", "-c", _ASK, LOOK]) as container:
        try:
            api.start(container)
            code = api.wait(container, timeout=ANSWER_SECONDS)["StatusCode"]
            if code:
                lines = api.logs(container, stdout=False, tail=40).decode(errors="replace").strip().splitlines()
                raise UsageError(f"the driver of {image} does not start: {lines[-1] if lines else f'exit code {code}'}")
            said = api.logs(container, stdout=True, stderr=False, stream=True, follow=False)
            return Inside.model_validate_json(_bounded(said, f"what {image} tells of itself"))
        except _failures() as error:
            raise UsageError(f"{image} cannot be run: {_reason(error)}") from error


def copy_out(api: APIClient, image: str, path: str) -> bytes:
    """A file of the image. Raises UsageError when it has no such file."""
    from docker.errors import NotFound

    with _container(api, image, ["none"]) as container:
        try:
            stream, _ = api.get_archive(container, path)
            with tarfile.open(fileobj=io.BytesIO(_bounded(stream, f"{path} of {image}"))) as archive:
                first = archive.next()
                member = archive.extractfile(first) if first is not None and first.isreg() else None
                if member is None:
                    raise UsageError(f"{path} of {image} is not a regular file")
                return member.read()
        except NotFound as error:
            raise UsageError(f"{image} has no {path}") from error
        except tarfile.TarError as error:
            raise UsageError(f"{path} of {image} cannot be read: {error}") from error


def _bounded(pieces: Iterable[bytes], name: str) -> bytes:
    """All that an image gives, which may be anybody's. Raises UsageError where that is too much."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > _MOST_BYTES:
            raise UsageError(f"{name} has more than the {_MOST_BYTES} bytes that are read")
    return bytes(data)


@contextmanager
def _container(api: APIClient, image: str, command: list[str]) -> Iterator[str]:
    from docker.errors import ImageNotFound

    rights = {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges:true"], "NetworkMode": "none"}
    host = {**rights, "ReadonlyRootfs": True, "Tmpfs": {"/tmp": ""}}
    body = {"Image": image, "Entrypoint": command[:1], "Cmd": command[1:], "HostConfig": host}
    try:
        with short_container(api, {**body, "Labels": {OWN_LABEL: image}}) as container:
            yield container
    except ImageNotFound as error:
        raise UsageError(f"there is no image {image} on this runtime; build it: suite images build") from error


def _reason(error: Exception) -> str:
    """One line: the runtime's own words, and what to do where they are known."""
    words = str(getattr(error, "explanation", None) or error)
    known = runtime_failure(words)
    return "; ".join(known.evidence) if known else essence(words)


def _failures() -> tuple[type[Exception], ...]:
    from docker.errors import APIError
    from requests.exceptions import RequestException

    return (APIError, RequestException, ValidationError)
