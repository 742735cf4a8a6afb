"""Asking an image what it holds: a short container without network and with a read-only root."""

import io
import tarfile
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from suite.launch.docker.conclude import essence, runtime_failure
from suite.launch.docker.session import ask, bounded, short_container
from suite.spec.base import Frozen, UsageError

if TYPE_CHECKING:
    from docker import APIClient

SBOM = "/opt/suite/sbom.cdx.json"

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


def look_inside(api: "APIClient", image: str) -> Inside:
    """Run a short container of the image. Raises UsageError where it gives no answer."""
    from docker.errors import APIError, ImageNotFound
    from requests.exceptions import RequestException

    try:
        return Inside.model_validate_json(ask(api, image, ("/opt/suite/bin/python", "-c", _ASK, LOOK)))
    except ImageNotFound as error:
        raise UsageError(_not_there(image)) from error
    except (APIError, RequestException, ValidationError) as error:
        raise UsageError(f"{image} cannot be run: {_reason(error)}") from error


def copy_out(api: "APIClient", image: str, path: str) -> bytes:
    """A file of the image. Raises UsageError when it has no such file."""
    from docker.errors import ImageNotFound, NotFound

    try:
        with short_container(api, image, ["none"]) as container:
            stream, _ = api.get_archive(container, path)
            with tarfile.open(fileobj=io.BytesIO(bounded(stream, f"{path} of {image}"))) as archive:
                first = archive.next()
                member = archive.extractfile(first) if first is not None and first.isreg() else None
                if member is None:
                    raise UsageError(f"{path} of {image} is not a regular file")
                return member.read()
    except ImageNotFound as error:
        raise UsageError(_not_there(image)) from error
    except NotFound as error:
        raise UsageError(f"{image} has no {path}") from error
    except tarfile.TarError as error:
        raise UsageError(f"{path} of {image} cannot be read: {error}") from error


def _not_there(image: str) -> str:
    return f"there is no image {image} on this runtime; build it: suite images build"


def _reason(error: Exception) -> str:
    """One line: the runtime's own words, and what to do where they are known."""
    words = str(getattr(error, "explanation", None) or error)
    known = runtime_failure(words)
    return "; ".join(known.evidence) if known else essence(words)
