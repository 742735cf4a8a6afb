"""Does an image hold what its lock and labels say, and has its base the digest that the catalogue locks?"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from docker import APIClient
from docker.errors import APIError
from pydantic import Field

from suite.images.inside import Environment, Inside, look_inside
from suite.images.project import Project, labelled_packages, normal, pins_of
from suite.spec import images as catalogue
from suite.spec.base import Frozen
from suite.spec.version import suite_version

DRIVER_PYTHON = "3.11"
#: where, what is expected there, and what was found
Fact = tuple[str, str | None, str | None]


class Difference(Frozen):
    """One thing that is not as it should be."""

    where: str
    expected: str | None = Field(description="null: it should not be there")
    found: str | None = Field(description="null: it is missing")

    def __str__(self) -> str:
        return f"{self.where}: {self.found or 'missing'}, expected {self.expected or 'none'}"


def check_image(api: APIClient, image: catalogue.Image, tag: str, project: Project) -> list[Difference]:
    """Run the image called ``tag`` and compare. Raises UsageError when it is not there or cannot be run."""
    inside = look_inside(api, tag)
    labels = api.inspect_image(tag)["Config"].get("Labels") or {}
    return differences(image, labels, inside, project, suite_version())


def differences(
    image: catalogue.Image, labels: Mapping[str, str], inside: Inside, project: Project, version: str
) -> list[Difference]:
    """What is not as catalogue, locks and labels say; empty when all is."""
    variant = labels.get(catalogue.VARIANT_LABEL)
    sources = {} if variant is not None and variant.endswith("-deps") else image.sources
    commits = {name: source.commit for name, source in sources.items()}
    own = {
        label.removeprefix(catalogue.COMMIT_LABEL): labels[label]
        for label in labels
        if label.startswith(catalogue.COMMIT_LABEL)
    }
    locked = project.lock(image.lock) if image.lock else None  # none where the base brings the stack whole
    locked = project.cpu_lock(image) if variant is not None and variant == image.cpu_stack else locked
    pins, packages = pins_of(locked) if locked else {}, {} if inside.stack is None else inside.stack.packages
    declared = catalogue.stack_versions_of(labels)
    wanted = {name for name in labelled_packages(image) if name in sources or name not in image.sources}
    stack = {name: packages.get(normal(name)) for name in wanted | declared.keys()}
    facts = [
        ("suite version", version, inside.suite),
        (f"label {catalogue.VERSION_LABEL}", inside.suite, labels.get(catalogue.VERSION_LABEL)),
        ("user", "any but root", "root" if inside.user == 0 else "any but root"),
        (f"label {catalogue.VARIANT_LABEL}", *_variant(image, variant)),
        *_environment("driver", inside.driver, DRIVER_PYTHON, pins_of(project.lock("driver.lock")), {}),
        *_environment("stack", inside.stack, image.python, pins, commits, image.stack is not None),
        # a package that is built on the way has no other trace of its commit
        *_each(f"label {catalogue.COMMIT_LABEL}", commits, own),
        *_each(f"label {catalogue.STACK_LABEL}", stack, declared),
    ]
    return [Difference(where=where, expected=due, found=found) for where, due, found in facts if due != found]


def _each(where: str, expected: Mapping[str, str | None], found: Mapping[str, str]) -> list[Fact]:
    return [(f"{where}{name}", expected.get(name), found.get(name)) for name in sorted(expected.keys() | found.keys())]


def _variant(image: catalogue.Image, variant: str | None) -> tuple[str | None, str | None]:
    known = {image.stack, image.cpu_stack, *([f"{image.stack}-deps"] if image.sources and image.stack else [])}
    expected = " or ".join(sorted(filter(None, known))) or None
    return variant if variant in known else expected, variant


def _environment(
    name: str,
    found: Environment | None,
    python: str,
    pins: Mapping[str, str],
    commits: Mapping[str, str],
    complete: bool = True,
) -> list[Fact]:
    """One environment against its lock. Not ``complete``: the base brings packages of its own, which no lock names."""
    if found is None:
        return [(f"{name}: interpreter", f"Python {python}", None)]
    held = {
        # the local version of a build (``+cpu``) counts only where the lock names one
        package: version if "+" in pins.get(package, "") else version.partition("+")[0]
        for package, version in found.packages.items()
        if package in pins or (complete and package not in commits)
    }
    built = [(f"{name}: commit of {package}", commits.get(package), one) for package, one in found.commits.items()]
    version = ".".join(found.python.split(".")[:2])
    return [(f"{name}: Python", python, version), *_each(f"{name}: ", pins, held), *built]


class Answer(Frozen):
    """The digest that a registry has for a base, beside that of the catalogue."""

    base: str = Field(description="name in the catalogue")
    reference: str
    locked: str | None
    found: str | None = Field(description="digest of the tag today; null: the registry could not be asked")
    reason: str | None = Field(default=None, description="why the registry could not be asked")

    @property
    def verdict(self) -> Literal["same", "differs", "new", "unknown"]:
        """How the two digests stand to each other; ``new``: the catalogue had none."""
        if self.found is None:
            return "unknown"
        if self.locked is None:
            return "new"
        return "same" if self.found == self.locked else "differs"


def ask_registries(api: APIClient, bases: Mapping[str, catalogue.BaseImage]) -> list[Answer]:
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


def write_digests(answers: list[Answer], root: Path) -> list[Path]:
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
