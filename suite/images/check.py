"""Does an image hold what its lock and its labels say?"""

from collections.abc import Mapping

from docker import APIClient
from pydantic import Field

from suite.images.inside import Environment, Inside, look_inside
from suite.images.project import Project, labelled_packages, normal, pins_of
from suite.spec.base import Frozen
from suite.spec.images import COMMIT_LABEL, STACK_LABEL, VARIANT_LABEL, VERSION_LABEL, Image, stack_versions_of
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


def check_image(api: APIClient, image: Image, tag: str, project: Project) -> list[Difference]:
    """Run the image called ``tag`` and compare. Raises UsageError when it is not there or cannot be run."""
    inside = look_inside(api, tag)
    labels = api.inspect_image(tag)["Config"].get("Labels") or {}
    return differences(image, labels, inside, project, suite_version())


def differences(
    image: Image, labels: Mapping[str, str], inside: Inside, project: Project, version: str
) -> list[Difference]:
    """What is not as catalogue, locks and labels say; empty when all is."""
    variant = labels.get(VARIANT_LABEL)
    sources = {} if variant is not None and variant.endswith("-deps") else image.sources
    commits = {name: source.commit for name, source in sources.items()}
    own = {label.removeprefix(COMMIT_LABEL): labels[label] for label in labels if label.startswith(COMMIT_LABEL)}
    locked = project.lock(image.lock) if image.lock else None  # none where the base brings the stack whole
    locked = project.cpu_lock(image) if variant is not None and variant == image.cpu_stack else locked
    pins, packages = pins_of(locked) if locked else {}, {} if inside.stack is None else inside.stack.packages
    declared = stack_versions_of(labels)
    wanted = {name for name in labelled_packages(image) if name in sources or name not in image.sources}
    stack = {name: packages.get(normal(name)) for name in wanted | declared.keys()}
    facts = [
        ("suite version", version, inside.suite),
        (f"label {VERSION_LABEL}", inside.suite, labels.get(VERSION_LABEL)),
        ("user", "any but root", "root" if inside.user == 0 else "any but root"),
        (f"label {VARIANT_LABEL}", *_variant(image, variant)),
        *_environment("driver", inside.driver, DRIVER_PYTHON, pins_of(project.lock("driver.lock")), {}),
        *_environment("stack", inside.stack, image.python, pins, commits, image.stack is not None),
        # a package that is built on the way has no other trace of its commit
        *_each(f"label {COMMIT_LABEL}", commits, own),
        *_each(f"label {STACK_LABEL}", stack, declared),
    ]
    return [Difference(where=where, expected=due, found=found) for where, due, found in facts if due != found]


def _each(where: str, expected: Mapping[str, str | None], found: Mapping[str, str]) -> list[Fact]:
    return [(f"{where}{name}", expected.get(name), found.get(name)) for name in sorted(expected.keys() | found.keys())]


def _variant(image: Image, variant: str | None) -> tuple[str | None, str | None]:
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
