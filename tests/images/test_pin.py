"""What is built is what Compose runs: the pin in .env, and nothing else of that file."""

from pathlib import Path

import pytest

from suite.images.build import Built, pin_for_compose, variable
from suite.images.project import Project
from suite.spec.images import find_image, images
from suite.spec.version import suite_version

COMPOSE = (Path(__file__).resolve().parents[2] / "compose.yaml").read_text()


def built(name: str = "engines", tag: str | None = None, digit: str = "a") -> Built:
    return Built(
        name=name,
        tag=tag or find_image(name).tag(suite_version()),
        id="sha256:" + digit * 64,
        size_bytes=1,
        seconds=1.0,
        labels={},
        log=Path("log"),
        is_settled=True,
    )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    return Project(tmp_path)


def test_a_later_build_replaces_its_own_line_and_no_other(project: Project) -> None:
    (project.root / ".env").write_text("MINE=1\nSUITE_TRLX_IMAGE=kept\n")
    pin_for_compose(project, built(digit="a"))
    path = pin_for_compose(project, built(digit="b"))
    assert path is not None
    assert path.read_text() == f"MINE=1\nSUITE_TRLX_IMAGE=kept\nSUITE_ENGINES_IMAGE=sha256:{'b' * 64}\n"


def test_another_tag_and_an_image_that_compose_does_not_run_are_not_pinned(project: Project) -> None:
    assert pin_for_compose(project, built(tag="mine:dev")) is None
    assert pin_for_compose(project, built("trlx-upstream")) is None
    assert not (project.root / ".env").exists()


def test_compose_runs_every_image_but_upstreams_own_stack() -> None:
    assert {name for name in images() if variable(name) in COMPOSE} == set(images()) - {"trlx-upstream"}
