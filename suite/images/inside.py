"""Asking an image what it holds: a short container without network and with a read-only root; and a file with that."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from suite.bundle.files import first_line
from suite.launch.docker.conclude import essence, told
from suite.launch.probe import told_by
from suite.spec import foreign
from suite.spec.base import Frozen, UsageError, printable
from suite.spec.images import Digest

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


def look_inside(api: Any, image: str) -> Inside:
    """What both interpreters of an image find. Raises UsageError where it gives no answer."""
    answer = _answer(api, image, "/opt/suite/bin/python", "-c", _ASK, LOOK)
    try:
        return Inside.model_validate_json(answer)
    except ValidationError as error:
        raise UsageError(f"{image} cannot be run: {essence(str(error))}") from error


def read_sbom(api: Any, image: str) -> bytes:
    """The list of components that an image carries. Raises UsageError when it has none."""
    return _answer(api, image, "cat", SBOM)


def _answer(api: Any, image: str, *command: str) -> bytes:
    from docker.errors import APIError
    from requests.exceptions import RequestException

    from suite.launch.docker.session import ask

    try:
        return ask(api, image, command)
    except (APIError, RequestException) as error:
        raise UsageError(f"{image} cannot be run: {told(error)}; `suite images list` shows what is here") from error


class StackFile(Environment):
    """What a stack answered, beside an image that is a file: ``engines.sqsh.stack.json`` speaks of ``engines.sqsh``."""

    schema_: Literal["suite/image-stack/1"] = Field(default="suite/image-stack/1", alias="schema")
    image: str | None = Field(description="name of the image that was asked; null: what was asked is an interpreter")
    id: str | None = Field(description="that image's id on the container runtime")
    file: Digest | None = Field(description="the image file that it was written for; null: it may be of any")

    def text(self) -> str:
        return json.dumps(self.model_dump(by_alias=True), indent=1) + "\n"


def beside(image: Path) -> Path:
    return image.with_name(f"{image.name}.stack.json")


def of_image(api: Any, image: str, file: str | None) -> StackFile:
    """Ask an image of the container runtime. Raises UsageError where it gives no answer or has no stack."""
    stack = look_inside(api, image).stack
    if stack is None:
        raise UsageError(f"{image} has no stack: no interpreter starts at /opt/stack/bin/python")
    identity = str(api.inspect_image(image).get("Id"))
    return StackFile(image=image, id=identity, file=file, **stack.model_dump())


def of_interpreter(python: str, file: str | None) -> StackFile:
    """Ask an interpreter of this machine, or of the image that this command itself runs in. Raises UsageError."""
    return StackFile(image=None, id=None, file=file, **told_by(python, LOOK))


def read_stack(path: Path) -> StackFile:
    """A file as ``suite images stack`` writes it. Raises UsageError for anything else."""
    text = foreign.read_text(path, str(path), by_user=True)
    try:
        return StackFile.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(printable(f"{path} is no file of `suite images stack`: {first_line(error)}")) from error


def read_beside(image: Path, digest: str) -> StackFile | None:
    """The file beside an image file of this digest, if any. Raises UsageError where it was written for another."""
    path = beside(image)
    if not path.exists():
        return None
    found = read_stack(path)
    if found.file not in (None, digest):
        again = f"`suite images stack IMAGE --file {image}`"
        raise UsageError(f"{path} was written for another image file than {image} is now; write it anew: {again}")
    return found
