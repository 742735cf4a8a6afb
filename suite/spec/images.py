"""The images that hold the stacks under test, by name, from ``manifests/images.yaml``."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from suite.spec.base import Frozen
from suite.spec.catalogue import data_file
from suite.spec.names import finder

#: Label of a package's version: ``suite.stack.torch``. A package that the image lacks has no label.
STACK_LABEL = "suite.stack."
#: Label of the commit that a package was installed from: ``suite.commit.trlx``.
COMMIT_LABEL = "suite.commit."
#: Labels that say which image of the catalogue it is and which of the Dockerfile's stacks it holds.
IMAGE_LABEL, VARIANT_LABEL = "suite.image", "suite.variant"
REVISION_LABEL, VERSION_LABEL = "org.opencontainers.image.revision", "org.opencontainers.image.version"
SOURCE_LABEL = "org.opencontainers.image.source"
BASE_NAME_LABEL, BASE_DIGEST_LABEL = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class BaseImage(Frozen):
    """What an image is built from: a tag, and the digest that the tag is known to have had."""

    reference: str = Field(description="repository and tag")
    digest: Digest | None = Field(default=None, description="digest of the tag; None: not known, so not pinned")
    made_here: bool = Field(default=False, description="of Debian's packages of the day that its tag ends with")

    @property
    def pinned(self) -> str:
        """What follows FROM: the tag with its digest, or the tag alone where none is known."""
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


class Source(Frozen):
    """A package that is on no index: it is installed from a commit, without its dependencies."""

    version: str = Field(description="the version that the package says it has at that commit")
    repository: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Image(Frozen):
    """One image of the catalogue."""

    name: str
    summary: str
    dockerfile: str
    stack: str | None = Field(default=None, description="build argument STACK; None: the Dockerfile has one stack only")
    cpu_stack: str | None = Field(default=None, description="STACK of the same versions with a CPU build of torch")
    cpu_lock: str = Field(default="cpu.lock", description="file in requirements that pins the CPU build")
    base: BaseImage = Field(description="what it is built on, and stands on")
    python: str = Field(description="Python of the stack, major.minor")
    lock: str | None = Field(default=None, description="file in requirements/images; None: the base brings the stack")
    interpreter: str | None = Field(default=None, description="Python of a base that brings the stack; None: made here")
    sources: Mapping[str, Source] = Field(default={}, description="packages installed from a commit")
    backends: tuple[str, ...] = Field(description="backends whose stack it holds")
    packages: tuple[str, ...] = Field(default=(), description="packages whose versions are labels")
    asks: Mapping[str, str] = Field(
        default={}, description="build arguments that only a user can give, and what each is"
    )

    @property
    def repository(self) -> str:
        return f"suite-{self.name}"

    def tag(self, version: str) -> str:
        """Name and tag of the image built by this version of the suite."""
        return f"{self.repository}:{version.replace('+', '-')}"


@lru_cache(maxsize=1)
def images() -> Mapping[str, Image]:
    known, declared, found = bases(), data_file("images.yaml"), {}
    for name, entry in declared["images"].items():
        own = {source: declared["sources"][source] for source in entry.get("sources", ())}
        found[name] = Image.model_validate({**entry, "name": name, "base": known[entry["base"]], "sources": own})
    return found


find_image = finder("image", images, "`suite images list` lists them")


def images_of(backend: str) -> tuple[Image, ...]:
    """The images that hold a backend's stack, the usual one first; empty for a backend without an image."""
    return tuple(image for image in images().values() if backend in image.backends)


def bases() -> dict[str, BaseImage]:
    return {name: BaseImage.model_validate(entry) for name, entry in data_file("images.yaml")["bases"].items()}


def stack_labels(versions: Mapping[str, str]) -> dict[str, str]:
    """Package -> version as the labels of an image."""
    return {f"{STACK_LABEL}{package}": version for package, version in versions.items()}


def stack_versions_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Package -> version as an image's labels say; empty where it has none."""
    return {key.removeprefix(STACK_LABEL): value for key, value in labels.items() if key.startswith(STACK_LABEL)}
