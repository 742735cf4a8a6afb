"""The image of a run: found, pulled where that is wanted, and held to what the driver needs of it."""

from collections.abc import Callable, Iterable
from typing import Any

from docker.auth import INDEX_NAME, resolve_repository_name
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag
from pydantic import Field

from suite.launch.docker.conclude import told
from suite.launch.docker.connection import Runtime
from suite.launch.docker.settings import Pull
from suite.spec.base import Frozen, UsageError
from suite.spec.images import IMAGE_LABEL, REVISION_LABEL, VERSION_LABEL, images_of, stack_versions_of
from suite.spec.version import suite_version

OnProgress = Callable[[str], None]


class ImageFacts(Frozen):
    """What a run's record holds of the image it ran in."""

    reference: str = Field(description="as it was asked for; a tag may mean another image tomorrow")
    id: str = Field(description="digest of its configuration, which names the image on this host")
    digest: str | None = Field(description="in the repository that was asked for; null: none is known")
    revision: str | None = Field(description="commit of the suite it was built from, as its label says")
    stack: dict[str, str] = Field(description="package -> version as its labels say")


def usual_image(backend: str) -> str:
    """Reference of the image that holds a backend's stack. Raises UsageError for a backend without one."""
    known = images_of(backend)
    if not known:
        raise UsageError(f"no image of the catalogue holds {backend}; name one with --image")
    return known[0].tag(suite_version())


def find_image(runtime: Runtime, reference: str, pull: Pull, on_progress: OnProgress) -> ImageFacts:
    """The image on the runtime. Raises UsageError when it is not there, cannot be had, or is not meant for this."""
    found = None if pull == "always" else _inspected(runtime, reference)
    if pull == "always" or (found is None and pull == "missing" and "/" in reference):
        _pull(runtime, reference, on_progress)
        found = _inspected(runtime, reference)
    if found is None:
        raise UsageError(
            f"there is no image {reference} on this runtime (--pull {pull}); `suite images list` shows what it has, "
            "`suite images build` makes those of the catalogue"
        )
    labels = (found.get("Config") or {}).get("Labels") or {}
    architecture, version = found.get("Architecture"), labels.get(VERSION_LABEL)
    if architecture and runtime.architecture and architecture != runtime.architecture:
        raise UsageError(
            f"{reference} is built for {architecture}, the runtime's host is {runtime.architecture}; build it there"
        )
    if IMAGE_LABEL in labels and version not in (None, suite_version()):
        raise UsageError(
            f"{reference} holds suite {version}, this driver is {suite_version()}; build it again: "
            f"suite images build {labels[IMAGE_LABEL]}"
        )
    return ImageFacts(
        reference=reference,
        id=found["Id"],
        digest=digest_in(reference, found.get("RepoDigests") or ()),
        revision=labels.get(REVISION_LABEL),
        stack=stack_versions_of(labels),
    )


def _inspected(runtime: Runtime, reference: str) -> dict[str, Any] | None:
    try:
        return runtime.api.inspect_image(reference)
    except ImageNotFound:
        return None
    except APIError as error:
        raise UsageError(f"the container runtime takes {reference!r} for no image: {error.explanation}") from error


def digest_in(reference: str, digests: Iterable[str]) -> str | None:
    """Of an image's digests that of the repository a user asked for; None for a name without a registry, which was
    given here, although some runtimes list it with a digest too."""
    asked = _repository(reference)
    found = (digest for digest in digests if _repository(digest) == asked)
    return next(found, None) if "/" in asked else None


def _repository(name: str) -> str:
    """Of a reference or a digest, as runtimes shorten it; an image of Podman's own is on localhost."""
    registry, path = resolve_repository_name(parse_repository_tag(name.partition("@")[0])[0])
    return path.removeprefix("library/") if registry in (INDEX_NAME, "localhost") else f"{registry}/{path}"


def _pull(runtime: Runtime, reference: str, on_progress: OnProgress) -> None:
    repository, tag = parse_repository_tag(reference)
    on_progress(f"pulling {reference}")
    layers, done = set[str](), set[str]()
    try:
        for line in runtime.api.pull(repository, tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise DockerException(line["error"])
            if line.get("id") and line.get("status") == "Pulling fs layer":
                layers.add(line["id"])
            if line.get("status") in ("Pull complete", "Already exists"):
                done.add(line["id"])
                on_progress(f"pulling {reference}: {len(done)} of {len(layers | done)} layers")
    except (DockerException, OSError) as error:
        raise UsageError(
            f"{reference} cannot be pulled: {told(error)}; check its name, the registry and the log-in"
        ) from error
