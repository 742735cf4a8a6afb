"""What an image's stack holds, in a file beside an image that is itself a file: nobody can ask that one from here.

``engines.sqsh.stack.json`` speaks of ``engines.sqsh``: what the image itself answered, not what a lock would have.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from suite.images.inside import LOOK, Environment, look_inside
from suite.launch.probe import ASK_SECONDS, answer_of
from suite.spec import foreign
from suite.spec.base import UsageError, printable
from suite.spec.images import Digest

if TYPE_CHECKING:
    from docker import APIClient

ENDING = ".stack.json"
_MOST_BYTES = 4 << 20


class StackFile(Environment):
    """What an image's stack holds."""

    schema_: Literal["suite/image-stack/1"] = Field(default="suite/image-stack/1", alias="schema")
    image: str | None = Field(description="name of the image that was asked; null: what was asked is an interpreter")
    id: str | None = Field(description="that image's id on the container runtime")
    file: Digest | None = Field(description="the image file that it was written for; null: it may be of any")

    def text(self) -> str:
        """As it is written."""
        return json.dumps(self.model_dump(by_alias=True), indent=1) + "\n"


def beside(image: Path) -> Path:
    """Where the file of an image file lies."""
    return image.with_name(image.name + ENDING)


def of_image(api: "APIClient", image: str, file: str | None) -> StackFile:
    """Ask an image of the container runtime. Raises UsageError where it gives no answer or has no stack."""
    stack = look_inside(api, image).stack
    if stack is None:
        raise UsageError(f"{image} has no stack: no interpreter starts at /opt/stack/bin/python")
    identity = str(api.inspect_image(image).get("Id"))
    return StackFile(image=image, id=identity, file=file, **stack.model_dump())


def of_interpreter(python: str, file: str | None) -> StackFile:
    """Ask an interpreter of this machine, or of the image that this command itself runs in. Raises UsageError."""
    found = answer_of(python, (python, "-c", LOOK), ASK_SECONDS)
    try:
        return StackFile(image=None, id=None, file=file, **Environment.model_validate(found).model_dump())
    except ValidationError as error:
        raise UsageError(f"{python} is no Python 3.8 or newer; name one with --python") from error


def read_stack(path: Path) -> StackFile:
    """A file as ``suite images stack`` writes it. Raises FileNotFoundError, and UsageError for anything else."""
    text = foreign.read_text(path, str(path), _MOST_BYTES, by_user=True)
    try:
        return StackFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            printable(f"{path} is no file of `suite images stack`: {where}: {first['msg']}".replace(": : ", ": "))
        ) from error


def read_beside(image: Path, digest: str) -> StackFile | None:
    """The file beside an image file whose digest that is; null where there is none.

    Raises UsageError where it was written for another file, as when the image was built anew.
    """
    path = beside(image)
    try:
        found = read_stack(path)
    except FileNotFoundError:
        return None
    if found.file not in (None, digest):
        raise UsageError(
            f"{path} was written for another image file than {image} is now; write it anew: "
            f"`suite images stack IMAGE --file {image}`"
        )
    return found
