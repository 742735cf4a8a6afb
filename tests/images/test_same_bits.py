"""Building twice on a real runtime: a small Dockerfile whose steps are of the kinds that the images' own are."""

import shutil
from pathlib import Path

import pytest

from suite.images.build import BuildChoices, build_image
from suite.images.project import Project

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = r"""
ARG BASE_IMAGE
ARG STACK
FROM ${BASE_IMAGE} AS builder
COPY finish.sh /build/
ENV SOURCE_DATE_EPOCH=1700000000
RUN mkdir -p /opt/stack/lib/small /image/work && \
    for name in a b c; do echo "KINDS = {'x', '${name}'}" > /opt/stack/lib/small/${name}.py; done && \
    bash /build/finish.sh compile python3 /none/ /opt/stack/lib && bash /build/finish.sh lay /opt/stack
FROM ${BASE_IMAGE} AS assembled
COPY --from=builder /image/ /
ENV SUITE_PYTHON=/opt/stack/bin/python
WORKDIR /work
USER 1000
FROM assembled AS stack-cpu-verl
LABEL suite.image="verl"
FROM assembled AS stack-trlx
LABEL suite.image="trlx"
FROM stack-${STACK} AS image
RUN python3 -c 'import sys; print(sys.version)'
"""


@pytest.fixture
def small(tmp_path: Path) -> Project:
    (tmp_path / "Dockerfile.deepspeed").write_text(DOCKERFILE)
    (tmp_path / "build" / "image").mkdir(parents=True)
    (tmp_path / "build" / "image" / "cpu-verl.lock").write_text("torch==2.13.0+cpu\n")
    shutil.copy(ROOT / "requirements" / "images" / "finish.sh", tmp_path)
    return Project(tmp_path)


def test_two_builds_have_one_id(docker_api, runtime, base_image, small):
    choices = BuildChoices(base_image=base_image, cpu=True, tag="suite-test-same:1", no_cache=True)
    try:
        first, second = (build_image("verl", docker_api, small, choices) for _ in range(2))
        assert first.is_settled and first.id == second.id
        found = docker_api.inspect_image(second.id)
        assert found["Created"].startswith("2023-11-14") and found["Config"]["User"] == "1000"
        done = runtime.docker(
            "run", "--rm", second.id, "sh", "-c", "pwd; id -u; stat -c %Y /opt /opt/stack /opt/stack/lib/small/*.py"
        )
        assert done.stdout.split() == ["/work", "1000", *["1700000000"] * 5], done.stderr
        steps = [entry["CreatedBy"] for entry in docker_api.history(second.id)]
        assert any("sys.version" in step for step in steps) and steps[-1] == "base"
    finally:
        runtime.docker("rmi", "suite-test-same:1")
