"""The list of an image's components: what it holds, in a form that others read, and the same for the same content."""

import importlib.util
import json
import sys
import sysconfig
from collections import Counter
from importlib.metadata import Distribution, version
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("cyclonedx", reason="cyclonedx comes with `make test`")

ROOT = Path(__file__).resolve().parents[2]
STATUS = """Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2+b7

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
"""


@pytest.fixture(scope="module")
def inventory() -> ModuleType:
    """Loaded as a file, as an image build does."""
    spec = importlib.util.spec_from_file_location("inventory", ROOT / "suite/images/inventory.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def listed(inventory: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    status = tmp_path_factory.mktemp("dpkg") / "status"
    status.write_text(STATUS)
    return inventory.inventory({"driver": sys.executable, "stack": sys.executable}, status)


def test_it_is_what_the_schema_says(listed: str) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(listed) is None


def test_both_environments_and_the_system_are_listed_with_versions_and_addresses(listed: str) -> None:
    components = json.loads(listed)["components"]
    count = Counter(component["properties"][0]["value"] for component in components)
    assert count["driver"] == count["stack"] > 20 and count["system"] == 1
    by_reference = {component["bom-ref"]: component for component in components}
    pydantic = by_reference[f"driver/pkg:pypi/pydantic@{version('pydantic')}"]
    assert pydantic["purl"] == f"pkg:pypi/pydantic@{version('pydantic')}"
    assert pydantic["licenses"] == [{"expression": "MIT"}]
    assert any(reference.startswith("stack/pkg:generic/cpython@3.") for reference in by_reference)
    (system,) = [component for component in components if component["purl"].startswith("pkg:deb/")]
    assert (system["name"], system["version"]) == ("bash", "5.2.15-2+b7")
    assert "arch=amd64" in system["purl"]


def test_the_same_content_gives_the_same_text_and_a_base_without_dpkg_has_no_system_packages(
    inventory: ModuleType, listed: str, tmp_path: Path
) -> None:
    (tmp_path / "status").write_text(STATUS)
    second = inventory.inventory({"driver": sys.executable, "stack": sys.executable}, tmp_path / "status")
    assert second == listed
    other = inventory.inventory({"driver": sys.executable}, tmp_path / "status")
    assert json.loads(other)["serialNumber"] != json.loads(listed)["serialNumber"]
    without = json.loads(inventory.inventory({"driver": sys.executable}, tmp_path / "none"))
    assert {one["properties"][0]["value"] for one in without["components"]} == {"driver"}, "a base without dpkg"


def test_a_package_from_a_repository_names_its_commit(inventory: ModuleType, tmp_path: Path) -> None:
    info = tmp_path / "trlx-0.7.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trlx\nVersion: 0.7.0\nLicense: MIT\n")
    origin = {"url": "https://git.example/trlx", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}}
    (info / "direct_url.json").write_text(json.dumps(origin))
    found = inventory._python("stack", Distribution.at(info))
    assert found["purl"] == f"pkg:pypi/trlx@0.7.0?vcs_url=git%2Bhttps://git.example/trlx%40{'a' * 40}"
    assert (found["version"], found["licenses"]) == ("0.7.0", [{"license": {"name": "MIT"}}])


def test_what_an_interpreter_brings_and_what_others_carry_is_listed_too(inventory: ModuleType, tmp_path: Path) -> None:
    for place, name in (("python/lib/site-packages", "pip"), ("stack/setuptools/_vendor", "wheel"), ("again", "pip")):
        info = tmp_path / place / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (tmp_path / "again" / "broken.dist-info").mkdir()
    own = Path(sysconfig.get_path("purelib"))
    listed = json.loads(inventory.inventory({"driver": sys.executable}, tmp_path / "none", [tmp_path, own]))
    bundled = [one for one in listed["components"] if one["properties"][0]["value"] == "bundled"]
    assert {"pkg:pypi/pip@1.0", "pkg:pypi/wheel@1.0"} <= {one["purl"] for one in bundled}
    assert f"pkg:pypi/pydantic@{version('pydantic')}" not in {one["purl"] for one in bundled}, "the driver has it"
