"""The image ``engines`` with a CPU build of torch, as `suite images build` makes it: two minutes, once a session."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest

from suite.images.build import BuildChoices, Built, build_image
from suite.images.project import Project
from suite.images.wheelhouse import fill_wheelhouse
from tests.engine import Engine

PROJECT = Project(Path(__file__).parents[1])


@pytest.fixture(scope="session")
def engines_image(engine: Engine, base_image: str) -> Built:
    """Built from this checkout, with nothing fetched but by pip's own configuration."""
    fill_wheelhouse(PROJECT)
    api = docker.APIClient(base_url=engine.host, version="auto", timeout=600)
    return build_image("engines", api, PROJECT, BuildChoices(base_image=base_image, cpu=True))
