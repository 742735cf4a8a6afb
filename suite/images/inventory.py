"""What an image is made of, as a CycloneDX list of its content alone. Runs inside an image build, by itself."""

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

#: environment -> its interpreter
ENVIRONMENTS = {"driver": "/opt/suite/bin/python", "stack": "/opt/stack/bin/python"}
#: what an image has beside its operating system's packages
FOLDERS = (Path("/opt"), Path("/usr/local"))
LONGEST_LICENSE_NAME = 80
_ASK = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path[1:]]))"
#: as CycloneDX 1.6 has it
Component = dict[str, Any]


def inventory(
    environments: dict[str, str], status: Path = Path("/var/lib/dpkg/status"), folders: Sequence[Path] = ()
) -> str:
    """The list as JSON. ``environments``: name -> interpreter; ``status``: dpkg's database, left out when missing;
    ``folders``: below which whatever else is a distribution is listed too, such as what an interpreter brings."""
    asked = {name: (python, "-c", _ASK) for name, python in environments.items()}
    found = {name: json.loads(subprocess.check_output(command)) for name, command in asked.items()}
    components = [one for name, (version, paths) in found.items() for one in _environment(name, version, paths)]
    components += _bundled(folders, {path for _, paths in found.values() for path in paths})
    components += _system(status)
    components.sort(key=lambda one: one["bom-ref"])
    references = [one["bom-ref"] for one in components]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(references))
    listed = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": f"urn:uuid:{serial}",
        "metadata": {"component": {"type": "container", "name": "suite", "bom-ref": "image"}},
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": references}],
    }
    return json.dumps(listed, indent=1, sort_keys=True) + "\n"


def _environment(name: str, version: str, paths: list[str]) -> list[Component]:
    found = [_python(name, distribution) for distribution in distributions(path=paths)]
    return [_component(name, "generic", "cpython", version, kind="platform"), *_first(found, "name")]


def _bundled(folders: Sequence[Path], known: set[str]) -> list[Component]:
    """Distributions where no environment looks: those of an interpreter's own, and copies that others carry."""
    kinds = ("*.dist-info", "*.egg-info")
    places = {str(path.parent.resolve()) for folder in folders for kind in kinds for path in folder.rglob(kind)}
    others = distributions(path=sorted(places - {str(Path(path).resolve()) for path in known}))
    return _first([_python("bundled", one) for one in others if one.metadata["Name"]], "purl")


def _first(components: list[Component], field: str) -> list[Component]:
    """Of components that are equal in a field the first."""
    return list({one[field]: one for one in reversed(components)}.values())


def _python(environment: str, distribution: Distribution) -> Component:
    """A distribution with the licence that it declares where that is no whole text, and its commit where it has one."""
    name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    qualifiers = {"vcs_url": f"git+{origin['url']}@{commit}"} if commit else {}
    component = _component(environment, "pypi", name, distribution.version, **qualifiers)
    declared = distribution.metadata.json
    expression, licence = declared.get("license_expression"), declared.get("license")
    if isinstance(expression, str):
        component["licenses"] = [{"expression": expression}]
    elif isinstance(licence, str) and licence and "\n" not in licence and len(licence) <= LONGEST_LICENSE_NAME:
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def _system(status: Path) -> Iterator[Component]:
    if not status.is_file():
        return
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), flags=re.MULTILINE))
    place, distro = f"deb/{release.get('ID', 'debian')}", f"{release.get('ID')}-{release.get('VERSION_ID')}"
    for entry in status.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = dict(re.findall(r"^([\w-]+): (.*)$", entry, flags=re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version, arch = fields["Package"], fields["Version"], fields["Architecture"]
            yield _component("system", place, name, version, arch=arch, distro=distro)


def _component(
    environment: str, place: str, name: str, version: str, kind: str = "library", **qualifiers: str
) -> Component:
    url = f"pkg:{place}/{quote(name)}@{quote(version, safe=':')}"
    if qualifiers:
        url += "?" + "&".join(f"{key}={quote(value, safe=':/')}" for key, value in sorted(qualifiers.items()))
    return {
        "type": kind,
        "name": name,
        "version": version,
        "purl": url,
        "bom-ref": f"{environment}/{url}",
        "properties": [{"name": "suite:environment", "value": environment}],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(inventory(ENVIRONMENTS, folders=FOLDERS), encoding="utf-8")
