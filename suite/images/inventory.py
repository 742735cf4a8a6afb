"""What an image is made of, as a CycloneDX list. Runs inside an image build, in an environment of its own.

Listed are both Python environments, the interpreters, and the packages of the operating system. The text depends on the
image's content alone: no time, and a serial number made from the components.
"""

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

#: environment -> its interpreter
ENVIRONMENTS = {"driver": "/opt/suite/bin/python", "stack": "/opt/stack/bin/python"}
#: what an image has beside its operating system's packages
FOLDERS = (Path("/opt"), Path("/usr/local"))
LONGEST_LICENSE_NAME = 80
_ASK = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path[1:]]))"


def inventory(
    environments: dict[str, str], status: Path = Path("/var/lib/dpkg/status"), folders: Sequence[Path] = ()
) -> str:
    """The list as JSON. ``environments``: name -> interpreter; ``status``: dpkg's database, left out when missing;
    ``folders``: below which whatever else is a distribution is listed too, such as what an interpreter brings."""
    bom = Bom()
    bom.metadata.component = Component(name="suite", type=ComponentType.CONTAINER, bom_ref="image")
    found = {name: _paths(python) for name, python in environments.items()}
    components = [one for name, (version, paths) in found.items() for one in _environment(name, version, paths)]
    components += _bundled(folders, {path for _, paths in found.values() for path in paths})
    components += _system(status)
    bom.components.update(components)
    references = sorted(str(one.bom_ref.value) for one in components)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(references))
    bom.register_dependency(bom.metadata.component, components)
    listed = json.loads(JsonV1Dot6(bom).output_as_string())
    del listed["metadata"]["timestamp"]
    return json.dumps(listed, indent=1, sort_keys=True) + "\n"


def _paths(python: str) -> tuple[str, list[str]]:
    """The version of an interpreter, and where it looks."""
    version, paths = json.loads(subprocess.run((python, "-c", _ASK), capture_output=True, check=True).stdout)
    return version, paths


def _environment(name: str, version: str, paths: list[str]) -> Iterator[Component]:
    """The interpreter and every distribution that it finds."""
    yield _component(name, PackageURL("generic", name="cpython", version=version), ComponentType.PLATFORM)
    seen = set()
    for distribution in distributions(path=paths):
        url = _python_url(distribution)
        if url.name not in seen:
            seen.add(url.name)
            yield _component(name, url, licenses=_licenses(distribution))


def _bundled(folders: Sequence[Path], known: set[str]) -> Iterator[Component]:
    """Distributions where no environment looks: those of an interpreter's own, and copies that others carry."""
    kinds = ("*.dist-info", "*.egg-info")
    places = {str(path.parent.resolve()) for folder in folders for kind in kinds for path in folder.rglob(kind)}
    seen = set()
    for distribution in distributions(path=sorted(places - {str(Path(path).resolve()) for path in known})):
        if not distribution.metadata["Name"]:
            continue
        url = _python_url(distribution)
        if url.to_string() not in seen:
            seen.add(url.to_string())
            yield _component("bundled", url, licenses=_licenses(distribution))


def _python_url(distribution: Distribution) -> PackageURL:
    """Package URL of a distribution; one installed from a repository names its commit."""
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    qualifiers = {"vcs_url": f"git+{origin['url']}@{commit}"} if commit else {}
    return PackageURL("pypi", name=name, version=distribution.version, qualifiers=qualifiers)


def _licenses(distribution: Distribution) -> Iterator[License]:
    """What the package itself declares, when that is an expression or a name and not a whole text."""
    declared = distribution.metadata.json
    expression, name = declared.get("license_expression"), declared.get("license")
    if isinstance(expression, str):
        yield LicenseFactory().make_from_string(expression)
    elif isinstance(name, str) and name and "\n" not in name and len(name) <= LONGEST_LICENSE_NAME:
        yield DisjunctiveLicense(name=name)


def _system(status: Path) -> Iterator[Component]:
    """Installed Debian packages, from dpkg's own database."""
    if not status.is_file():
        return
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), flags=re.MULTILINE))
    for entry in status.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, Any] = dict(re.findall(r"^([\w-]+): (.*)$", entry, flags=re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield _component(
                "system",
                PackageURL(
                    "deb",
                    release.get("ID", "debian"),
                    fields["Package"],
                    fields["Version"],
                    {"arch": fields["Architecture"], "distro": f"{release.get('ID')}-{release.get('VERSION_ID')}"},
                ),
            )


def _component(
    environment: str,
    url: PackageURL,
    kind: ComponentType = ComponentType.LIBRARY,
    licenses: Iterable[License] = (),
) -> Component:
    return Component(
        name=url.name,
        version=url.version,
        type=kind,
        purl=url,
        bom_ref=f"{environment}/{url.to_string()}",
        licenses=licenses,
        properties=[Property(name="suite:environment", value=environment)],
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(inventory(ENVIRONMENTS, folders=FOLDERS), encoding="utf-8")
