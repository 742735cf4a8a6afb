"""Asking an image what it holds: a short container without network and with a read-only root."""

from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from suite.launch.docker.conclude import essence, told
from suite.launch.docker.session import ask
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

    python: str = Field(description="its version")
    packages: dict[str, str] = Field(description="normal name -> version")
    commits: dict[str, str] = Field(description="normal name -> commit, of what was installed from a repository")


class Inside(Frozen):
    """What an image reports of itself when it runs."""

    user: int = Field(description="user id of its processes")
    suite: str = Field(description="version of the suite")
    driver: Environment | None
    stack: Environment | None = Field(description="null: there is none, or its interpreter does not start")


def look_inside(api: "APIClient", image: str) -> Inside:
    """What both interpreters of an image find. Raises UsageError where it gives no answer."""
    answer = _answer(api, image, "/opt/suite/bin/python", "-c", _ASK, LOOK)
    try:
        return Inside.model_validate_json(answer)
    except ValidationError as error:
        raise UsageError(f"{image} cannot be run: {essence(str(error))}") from error


def read_sbom(api: "APIClient", image: str) -> bytes:
    """The list of components that an image carries. Raises UsageError when it has none."""
    return _answer(api, image, "cat", SBOM)


def _answer(api: "APIClient", image: str, *command: str) -> bytes:
    from docker.errors import APIError, ImageNotFound
    from requests.exceptions import RequestException

    try:
        return ask(api, image, command)
    except ImageNotFound as error:
        raise UsageError(f"there is no image {image} on this runtime; build it: suite images build") from error
    except (APIError, RequestException) as error:
        raise UsageError(f"{image} cannot be run: {told(error)}") from error
