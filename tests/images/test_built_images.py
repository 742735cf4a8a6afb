"""The image engines, really built and run: what it holds, what it leaves out, who it runs as, and that it measures."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from suite.images.build import BuildChoices, BuildFailed, Built, build_image
from suite.images.check import check_image
from suite.images.inside import read_sbom
from suite.images.project import Project, pins_of
from suite.launch.docker.session import SESSION_LABEL, session_id
from suite.launch.job import PYTHON, PYTHON_PATH
from suite.spec.base import UsageError
from suite.spec.images import BASE_NAME_LABEL, VARIANT_LABEL, find_image, stack_versions_of
from tests.built import ROOT
from tests.container_runtime import Runtime
from tests.waiting import wait_until

if TYPE_CHECKING:
    from docker import APIClient

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(1800)]

ENGINES = find_image("engines")
SITE = "lib/python3.11/site-packages"
#: distributions that are Debian's packages too
DEBIANS_OWN = "usr/lib/python3/dist-packages/"
Run = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def run(runtime: Runtime, engines_image: Built) -> Run:
    """`docker run` of the image as a launcher would: another user, a read-only root, no network."""

    def start(*arguments: str, options: tuple[str, ...] = (), user: str = "4242:4242") -> subprocess.CompletedProcess:
        sealed = ("--rm", "--read-only", "--network", "none", "--cap-drop", "ALL", "--tmpfs", "/tmp:exec")
        return runtime.docker("run", *sealed, "--user", user, *options, engines_image.id, *arguments, timeout=300)

    return start


class TestWhatItHolds:
    def test_it_holds_what_its_locks_and_labels_say(self, docker_api, engines_image, build_project):
        assert check_image(docker_api, ENGINES, engines_image.id, build_project) == []
        assert engines_image.labels[VARIANT_LABEL] == "cpu"
        assert engines_image.labels[BASE_NAME_LABEL] == "suite-base:bookworm"
        assert stack_versions_of(engines_image.labels)["torch"].endswith("+cpu")

    def test_its_components_are_listed_in_full_as_their_schema_says(self, docker_api, engines_image, layers):
        pytest.importorskip("cyclonedx", reason="cyclonedx comes with `make test`")
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

        listed = read_sbom(docker_api, engines_image.id).decode()
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(listed) is None
        components = json.loads(listed)["components"]
        python = [one for one in components if one["purl"].startswith("pkg:pypi/")]
        for environment, lock in (("driver", "requirements/images/driver.lock"), ("stack", "requirements/cpu.lock")):
            own = (one for one in python if one["properties"][0]["value"] == environment)
            assert {one["name"]: one["version"].partition("+")[0] for one in own} == pins_of(ROOT / lock)
        system = {f"{one['name']} {one['version']}" for one in components if one["purl"].startswith("pkg:deb/debian/")}
        assert layers.distributions <= {f"{one['name']} {one['version']}" for one in python}
        assert layers.packages <= system
        assert min(len(layers.distributions), len(layers.packages)) > 50

    def test_nothing_of_the_build_machine_is_left(self, docker_api, engines_image, wheelhouse, layers):
        history = "".join(entry["CreatedBy"] for entry in docker_api.history(engines_image.id))
        assert "ca.pem" not in history and "wheelhouse" not in history
        assert any(name.startswith("opt/stack/lib/python3.11/site-packages/torch/") for name in layers.names)
        leftover = {name for name in layers.names if name.startswith(("build/", "etc/uv", "root/.cache", "tmp/"))}
        passed_in = {"uv", "ca.crt", "ca.pem", "pip.conf", *(path.name for path in wheelhouse.iterdir())}
        leftover |= {name for name in layers.names if name.rpartition("/")[2] in passed_in}
        assert leftover == set()


class Layers(NamedTuple):
    """All files of an image's layers, and what these say of distributions and Debian's packages, as NAME VERSION."""

    names: set[str]
    distributions: set[str]
    packages: set[str]


@pytest.fixture(scope="module")
def layers(runtime: Runtime, engines_image: Built, tmp_path_factory: pytest.TempPathFactory) -> Layers:
    saved = tmp_path_factory.mktemp("saved") / "image.tar"
    runtime.docker("save", "-o", str(saved), engines_image.id, check=True)
    found = Layers(set(), set(), set())
    with tarfile.open(saved) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))  # type: ignore[arg-type]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(layer)) as files:
                _look(files, found)
    saved.unlink()
    return found


def _look(files: tarfile.TarFile, found: Layers) -> None:
    for member in files:
        name = member.name.removeprefix("./")
        if not member.isfile():
            continue
        found.names.add(name)
        if name.endswith((".dist-info/METADATA", ".egg-info/PKG-INFO")) and not name.startswith(DEBIANS_OWN):
            said = HeaderParser().parsestr(files.extractfile(member).read().decode(errors="replace"))
            found.distributions.add(f"{re.sub(r'[-_.]+', '-', said['Name']).lower()} {said['Version']}")
        elif name == "var/lib/dpkg/status":
            for entry in files.extractfile(member).read().decode(errors="replace").split("\n\n"):
                said = HeaderParser().parsestr(entry)
                if (said["Status"] or "").endswith(" installed"):
                    found.packages.add(f"{said['Package']} {said['Version']}")


class TestHowItRuns:
    def test_it_explains_itself(self, run: Run) -> None:
        done = run()
        assert done.returncode == 0 and "suite [OPTIONS] COMMAND" in done.stdout
        assert run("--help").stdout == done.stdout

    @pytest.mark.ranks
    def test_it_measures_as_any_user_on_a_read_only_root(self, run: Run, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        runs.mkdir()
        runs.chmod(0o777)
        quick = ("--size", "1M", "--warmup", "1", "--iterations", "2", "--repeats", "1", "--json")
        done = run("run", *quick, options=("-v", f"{runs}:/work/runs"))
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["measured"]) == 2
        for bundle in (path for path in runs.iterdir() if (path / "record.json").exists()):
            record = json.loads((bundle / "record.json").read_text())
            assert record["status"] == "ok" and record["throughput"]["samples_per_second"]["value"] > 0
            assert (bundle / "record.json").stat().st_uid == 4242
            assert record["environment"]["worker"]["packages"]["torch"].endswith("+cpu")

    def test_results_of_a_container_without_a_folder_stay_in_it(self, run: Run) -> None:
        done = run("run", "--size", "1M", "--repeats", "1")
        assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("error: "), done.stderr


class TestATamperedImage:
    @pytest.fixture
    def tampered(self, runtime: Runtime, engines_image: Built) -> Iterator[Callable[..., str]]:
        made = []

        def tamper(command: str, *changes: str) -> str:
            name = f"suite-test-tampered-{len(made)}"
            given = ("--user", "0", "--entrypoint", "sh", engines_image.id, "-c", command)
            runtime.docker("run", "--name", name, "--network", "none", *given, check=True)
            kept = ("USER 1000", 'ENTRYPOINT ["suite"]', *changes)
            options = tuple(word for change in kept for word in ("--change", change))
            runtime.docker("commit", *options, name, f"{name}:1", check=True)
            runtime.docker("rm", name)
            made.append(f"{name}:1")
            return made[-1]

        yield tamper
        runtime.docker("rmi", *made)

    def test_what_is_another_or_missing_is_found(self, docker_api, build_project, tampered):
        tag = tampered(
            f"rm /opt/stack/bin/python; rm -r /opt/suite/{SITE}/rich-*.dist-info",
            *("LABEL suite.stack.transformers=9.9.9", "USER 0"),
        )
        found = {one.where for one in check_image(docker_api, ENGINES, tag, build_project)}
        assert {"stack: interpreter", "driver: rich", "label suite.stack.transformers", "user"} <= found

    def test_a_driver_that_does_not_start_is_one_line(self, docker_api, build_project, tampered):
        tag = tampered("rm -r /opt/suite/src/suite/spec")
        with pytest.raises(UsageError, match=r"python in .* ended with exit code 1: .*ModuleNotFoundError"):
            check_image(docker_api, ENGINES, tag, build_project)

    def test_no_container_is_left_behind(self, docker_api: APIClient) -> None:
        assert docker_api.containers(all=True, filters={"label": f"{SESSION_LABEL}={session_id()}"}) == []


def building(docker_api: APIClient) -> set[str]:
    """Containers of builder stages, which have a shell of their own."""
    found = docker_api.containers(all=True)
    return {entry["Id"] for entry in found if entry["Command"].startswith("/bin/bash -euo pipefail")}


class TestBuilding:
    def test_the_suite_is_laid_upon_an_image_that_others_publish(
        self, docker_api: APIClient, runtime: Runtime, engines_image: Built, base_image: str, build_project: Project
    ) -> None:
        """The base stands for the published image, and its Python for that of the stack inside."""
        tag, published = "suite-test-published:1", find_image("nemo-rl")
        arguments = {"INTERPRETER": "/usr/bin/python3"}
        choices = BuildChoices(base_image=base_image, offline=True, tag=tag, arguments=arguments)
        try:
            built = build_image(published.name, docker_api, build_project, choices)
            assert built.labels["suite.image"] == "nemo-rl"
            place = ("--env", f"PYTHONPATH={PYTHON_PATH}", "--entrypoint", PYTHON)
            done = runtime.docker("run", "--rm", "--read-only", *place, built.id, "-m", "suite.worker", "--help")
            assert done.returncode == 0 and "One rank of a run" in done.stdout
            (only,) = check_image(docker_api, published, built.id, build_project)
            assert only.where == "stack: Python" and only.found == "3.11"
        finally:
            runtime.docker("rmi", tag)

    def test_a_step_that_fails_is_told_and_leaves_nothing(self, docker_api, base_image, build_project):
        before = building(docker_api)
        choices = BuildChoices(base_image=base_image, offline=True, arguments={"STACK_PYTHON": "3.1"}, tag="none:1")
        with pytest.raises(BuildFailed, match=r"step \d+ of \d+ \(RUN python3 -m venv .* all of its output is in"):
            build_image("engines", docker_api, build_project, choices)
        assert building(docker_api) <= before

    def test_an_interrupted_build_leaves_nothing(self, docker_api, base_image, build_project):
        before = building(docker_api)

        def interrupt(step: object) -> None:
            if "python3 -m venv" in str(step):
                raise KeyboardInterrupt

        choices = BuildChoices(base_image=base_image, offline=True, target="common", no_cache=True, tag="none:2")
        with pytest.raises(KeyboardInterrupt):
            build_image("engines", docker_api, build_project, choices, interrupt)
        wait_until(lambda: building(docker_api) <= before)
