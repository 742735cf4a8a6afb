"""Looking into an image that is not the suite's, on a scripted runtime."""

from __future__ import annotations

from typing import Any

import pytest
from docker.errors import APIError

from suite.images.inside import look_inside
from suite.spec.base import UsageError

REFUSED = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: exec: "/opt/suite/bin/python": stat /opt/suite/bin/python: no such file or '
    "directory: unknown"
)


class Foreign:
    """A runtime that cannot start the suite's interpreter in an image."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def create_host_config(self, **how: Any) -> dict[str, Any]:
        return how

    def create_container(self, image: str, **how: Any) -> dict[str, str]:
        return {"Id": "one"}

    def start(self, container: str) -> None:
        raise APIError("400 Client Error for http+docker://localhost/start: Bad Request", explanation=REFUSED)

    def remove_container(self, container: str, force: bool) -> None:
        self.removed.append(container)


def test_a_foreign_image_is_told_by_what_it_lacks_and_what_to_do() -> None:
    runtime = Foreign()
    with pytest.raises(
        UsageError, match=r'debian:12 cannot be run: exec: "/opt/suite/bin/python".*suite images build'
    ) as told:
        look_inside(runtime, "debian:12")  # type: ignore[arg-type]
    assert "400 Client Error" not in str(told.value)
    assert runtime.removed == ["one"]
