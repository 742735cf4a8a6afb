"""What the catalogue has, and what of it the runtime holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from suite.spec.base import Frozen
from suite.spec.images import IMAGE_LABEL, REVISION_LABEL, VARIANT_LABEL, VERSION_LABEL, Image

if TYPE_CHECKING:
    from docker import APIClient


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
    tagged = [entry for entry in found if entry.get("RepoTags")]
    return tuple(_as_present(entry) for entry in sorted(tagged, key=lambda entry: -int(entry["Created"])))


def _as_present(entry: dict[str, Any]) -> Present:
    labels = entry.get("Labels") or {}
    return Present(
        id=entry["Id"],
        tags=tuple(entry["RepoTags"]),
        size_bytes=entry["Size"],
        version=labels.get(VERSION_LABEL),
        revision=labels.get(REVISION_LABEL),
        variant=labels.get(VARIANT_LABEL),
    )
