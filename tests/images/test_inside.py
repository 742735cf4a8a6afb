"""What an image gives of itself may be anything: a bounded part of plain files is taken."""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterable
from typing import Any

import pytest
from docker.errors import APIError

from suite.images.inside import copy_out, look_inside
from suite.launch.docker.session import this_driver
from suite.spec.base import UsageError


class Runtime:
    """Gives these pieces, whatever is asked for."""

    def __init__(self, pieces: Iterable[bytes], refusal: Exception | None = None) -> None:
        self.pieces, self.refusal = pieces, refusal
        self.removed: list[str] = []
        self.labels: dict[str, str] = {}

    def create_container_from_config(self, body: dict[str, Any]) -> dict[str, str]:
        self.labels = body["Labels"]
        return {"Id": "made"}

    def start(self, container: str) -> None:
        if self.refusal is not None:
            raise self.refusal

    def wait(self, container: str, timeout: int) -> dict[str, int]:
        return {"StatusCode": 0}

    def logs(self, container: str, **asked: Any) -> Iterable[bytes]:
        assert asked["stream"] and not asked["follow"]
        return self.pieces

    def get_archive(self, container: str, path: str) -> tuple[Iterable[bytes], None]:
        return self.pieces, None

    def remove_container(self, container: str, force: bool, v: bool) -> None:
        self.removed.append(container)


def archive(kind: bytes, content: bytes = b"") -> list[bytes]:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        entry = tarfile.TarInfo("sbom.json")
        entry.type, entry.linkname, entry.size = kind, "/etc/shadow", len(content)
        tar.addfile(entry, io.BytesIO(content))
    return [data.getvalue()]


def test_a_plain_file_is_copied_out_of_a_container_that_is_found_as_an_orphan_should_this_process_die() -> None:
    runtime = Runtime(archive(tarfile.REGTYPE, b"content"))
    assert copy_out(runtime, "image", "/sbom.json") == b"content"
    assert runtime.labels["suite.driver"] == this_driver().label


ENDLESS = itertools.repeat(bytes(1 << 20))


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (archive(tarfile.SYMTYPE), "/sbom.json of image is not a regular file"),
        (archive(tarfile.FIFOTYPE), "/sbom.json of image is not a regular file"),
        ([b"no archive" * 100], "/sbom.json of image cannot be read"),
        ([], "/sbom.json of image"),
        (ENDLESS, "/sbom.json of image has more than the 67108864 bytes that are read"),
    ],
)
def test_anything_else_is_one_line_and_the_container_is_gone(pieces: Iterable[bytes], said: str) -> None:
    runtime = Runtime(pieces)
    with pytest.raises(UsageError, match=said):
        copy_out(runtime, "image", "/sbom.json")
    assert runtime.removed == ["made"]


def test_an_image_that_talks_without_end_is_not_listened_to() -> None:
    runtime = Runtime(ENDLESS)
    with pytest.raises(UsageError, match="what image tells of itself has more than"):
        look_inside(runtime, "image")
    assert runtime.removed == ["made"]


def test_an_image_without_the_suite_is_told_by_what_it_lacks_and_what_to_do() -> None:
    refused = (
        "failed to create task for container: OCI runtime create failed: runc create failed: "
        'unable to start container process: exec: "/opt/suite/bin/python": stat /opt/suite/bin/python: no such file or '
        "directory: unknown"
    )
    error = APIError("400 Client Error for http+docker://localhost/start: Bad Request", explanation=refused)
    runtime = Runtime((), error)
    words = r'debian:12 cannot be run: exec: "/opt/suite/bin/python".*suite images build'
    with pytest.raises(UsageError, match=words) as told:
        look_inside(runtime, "debian:12")
    assert "400 Client Error" not in str(told.value)
    assert runtime.removed == ["made"]
