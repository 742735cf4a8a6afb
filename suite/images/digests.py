"""Asking registries which digest a base's tag has; writing it into catalogue, Dockerfiles and compose/build.yaml."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from docker import APIClient
from docker.errors import APIError
from pydantic import Field

from suite.spec.base import Frozen
from suite.spec.images import BaseImage

Verdict = Literal["same", "differs", "new", "unknown"]


class Answer(Frozen):
    """The digest that a registry has for a base, beside that of the catalogue."""

    base: str = Field(description="name in the catalogue")
    reference: str
    locked: str | None
    found: str | None = Field(description="digest of the tag today; null: the registry could not be asked")
    reason: str | None = Field(default=None, description="why the registry could not be asked")

    @property
    def verdict(self) -> Verdict:
        """How the two digests stand to each other; ``new``: the catalogue had none."""
        if self.found is None:
            return "unknown"
        if self.locked is None:
            return "new"
        return "same" if self.found == self.locked else "differs"


def ask(api: APIClient, bases: Mapping[str, BaseImage]) -> list[Answer]:
    """Ask each base's registry through the runtime, which has the log-ins and the proxies."""
    answers = []
    for name, base in bases.items():
        found = reason = None
        try:
            found = api.inspect_distribution(base.reference)["Descriptor"]["digest"]
        except APIError as error:
            reason = " ".join(str(error.explanation or error).split())
        answers.append(Answer(base=name, reference=base.reference, locked=base.digest, found=found, reason=reason))
    return answers


def write(answers: list[Answer], root: Path) -> list[Path]:
    """Write digests that are new or differ into a checkout; the files that were changed."""
    changed = []
    names = ("manifests/images.yaml", "Dockerfile.*", "compose/build.yaml")
    for path in [path for name in names for path in sorted(root.glob(name))]:
        before = path.read_text(encoding="utf-8")
        after = before
        for answer in answers:
            if answer.verdict in ("new", "differs"):
                name, digest = re.escape(answer.reference), answer.found
                after = re.sub(rf"(reference: {name}\n\s+digest: ).*", rf"\g<1>{digest}", after)
                after = re.sub(rf"(ARG BASE_IMAGE={name})(@\S+)?\n", rf"\g<1>@{digest}\n", after)
                after = re.sub(rf'(BASE_IMAGE: "{name})(@[^"]+)?"', rf'\g<1>@{digest}"', after)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed
