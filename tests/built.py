"""What tests on a real runtime share: the SDK, a checkout to build from, the image `engines` built once a session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from suite.images.build import BuildChoices, Built, build_image
from suite.images.project import Project, fill_wheelhouse
from suite.spec.images import find_image
from tests.container_runtime import Runtime

if TYPE_CHECKING:
    from docker import APIClient

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = (
    *("suite", "manifests", "requirements", "LICENSE", ".dockerignore"),
    *("Dockerfile.deepspeed", "Dockerfile.nemo", "Dockerfile.published"),
)
#: stands for the certificate of a build machine; what an image must never hold
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nc3VpdGUtdGVzdC1jYQ==\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="session")
def docker_api(runtime: Runtime) -> Iterator[APIClient]:
    """The runtime of the tests through the SDK."""
    import docker

    client = docker.APIClient(base_url=runtime.host, version="auto", timeout=600)
    yield client
    client.close()


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    """Filled once and kept in the checkout, where git does not see it."""
    return fill_wheelhouse(Project(ROOT), find_image("engines"))


@pytest.fixture(scope="session")
def build_project(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout of the tests' own, with a wheelhouse and a certificate as a build machine may pass them in."""
    root = tmp_path_factory.mktemp("checkout")
    for name in CONTEXT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    inputs = root / "build" / "image"
    shutil.copytree(wheelhouse.parent, inputs, copy_function=_link)
    (inputs / "ca.crt").write_text(CERTIFICATE)
    return Project(root)


def _link(source: str, target: str) -> None:
    """The same file where both folders are on one file system, a copy elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="session")
def engines_image(docker_api: APIClient, base_image: str, build_project: Project) -> Built:
    """The image engines with a CPU build of torch, on the local base: two minutes on two quiet cores."""
    return build_image("engines", docker_api, build_project, BuildChoices(base_image=base_image, cpu=True))
