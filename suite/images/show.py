"""What the commands around images print, and what of the catalogue the runtime holds."""

from collections.abc import Sequence
from pathlib import Path

from docker import APIClient
from pydantic import Field

from suite.images.build import Built
from suite.images.check import Difference
from suite.images.digests import Answer
from suite.spec.base import Frozen
from suite.spec.images import IMAGE_LABEL, REVISION_LABEL, VARIANT_LABEL, VERSION_LABEL, Image, find_image
from suite.spec.terminal import say


class Present(Frozen):
    """An image of ours on the runtime."""

    id: str
    tags: tuple[str, ...]
    size_bytes: int
    version: str | None = Field(description="of the suite inside")
    revision: str | None = Field(description="commit of the suite inside")
    variant: str | None = Field(description="which of the Dockerfile's stacks; cpu: with a CPU build of torch")


class Row(Frozen):
    """One image of the catalogue."""

    image: Image
    tag: str = Field(description="what this version of the suite calls it")
    present: tuple[Present, ...] | None = Field(description="newest first; null: there is no runtime to ask")


def rows(images: dict[str, Image], version: str, api: APIClient | None) -> list[Row]:
    """Every image of the catalogue with what the runtime holds of it. Raises docker's errors when the runtime fails."""
    return [
        Row(image=image, tag=image.tag(version), present=None if api is None else _present(api, image))
        for image in images.values()
    ]


def _present(api: APIClient, image: Image) -> tuple[Present, ...]:
    found = api.images(filters={"label": f"{IMAGE_LABEL}={image.name}"})
    tagged = sorted((entry for entry in found if entry.get("RepoTags")), key=lambda entry: -int(entry["Created"]))
    return tuple(
        Present(
            id=entry["Id"],
            tags=tuple(entry["RepoTags"]),
            size_bytes=entry["Size"],
            version=entry["Labels"].get(VERSION_LABEL),
            revision=entry["Labels"].get(REVISION_LABEL),
            variant=entry["Labels"].get(VARIANT_LABEL),
        )
        for entry in tagged
    )


SHORT_ID = len("sha256:") + 12
_VERDICTS = {
    "same": "as locked",
    "differs": "differs from the locked one",
    "new": "was not pinned before",
    "unknown": "could not be asked",
}


def print_rows(rows: Sequence[Row], why_no_engine: str | None) -> None:
    for row in rows:
        image = row.image
        say(f"{image.name:<14} {image.summary}")
        say(f"{'':14} base     {image.base.reference}")
        unpinned = "not pinned by digest: none is known; `suite images lock` asks"
        made = "none: it is made here, of Debian's packages of that day"
        say(f"{'':14} digest   {image.base.digest or (made if image.base.made_here else unpinned)}")
        say(f"{'':14} backends {', '.join(image.backends) or 'none yet'}")
        for found in row.present or ():
            variant = ", CPU build" if found.variant == image.cpu_stack else ""
            revision = f", commit {found.revision[:12]}" if found.revision else ""
            say(
                f"{'':14} here     {', '.join(found.tags)}  {found.id[:SHORT_ID]}  {found.size_bytes / 1e9:.2f} GB, "
                f"suite {found.version}{revision}{variant}"
            )
        if row.present == ():
            say(f"{'':14} here     no; suite images build {image.name}")
    if why_no_engine:
        say(f"what is built is not known: {why_no_engine}")


def print_built(built: Built, pinned: Path | None) -> None:
    """The image's id, and how to run it. ``pinned``: the file by which Compose now runs this very image, if it does."""
    say(f"built {built.tag} in {built.seconds:.0f} s: {built.id}, {built.size_bytes / 1e9:.2f} GB; log: {built.log}")
    image = find_image(built.name)
    variant = built.labels.get(VARIANT_LABEL)
    size = "8M" if variant is not None and variant == image.cpu_stack else "1.3B"
    if not built.is_settled:
        say("note:  this runtime keeps images in a way that gives each build an id of its own")
    if IMAGE_LABEL not in built.labels:
        return  # a stage on the way, which holds no stack to check or to run
    say(f"check: suite images check {built.name} --image {built.tag}")
    for backend in image.backends[:1]:
        say(f"run:   suite run --launcher docker --image {built.tag} --backend {backend} --size {size}")
    if pinned is not None:
        say(f"{pinned.name}: `docker compose run` takes this image, by its id")


def print_differences(tag: str, found: Sequence[Difference]) -> None:
    """What is not as it should be, or that all is."""
    for difference in found:
        say(difference)
    say(f"{tag}: {f'{len(found)} differences' if found else 'holds what its locks and labels say'}")


def print_answers(answers: Sequence[Answer]) -> None:
    """Base by base: the digest that is locked, the one found, and how they stand to each other."""
    for answer in answers:
        say(f"{answer.base:<12} {answer.reference}: {_VERDICTS[answer.verdict]}")
        say(f"{'':12} locked {answer.locked or 'none'}")
        say(f"{'':12} found  {answer.found or f'none: {answer.reason}'}")
