"""What an image gives of itself may be anything: a bounded part is taken."""

import itertools
from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import APIError

from suite.images.inside import look_inside, read_sbom
from suite.launch.docker.session import this_driver
from suite.spec.base import UsageError


def runtime_of(pieces: Iterable[bytes], **more: Any) -> Mock:
    """One whose container gives these pieces, whatever is asked for."""
    answers = {
        "create_container_from_config.return_value": {"Id": "made"},
        "wait.return_value": {"StatusCode": 0},
        "logs.return_value": pieces,
    }
    return Mock(**answers, **more)


def is_removed(runtime: Mock) -> bool:
    return [call.args for call in runtime.remove_container.call_args_list] == [("made",)]


def test_its_components_are_read_in_a_container_that_is_found_as_an_orphan_should_this_process_die() -> None:
    runtime = runtime_of([b"con", b"tent"])
    assert read_sbom(runtime, "image") == b"content"
    (body,) = runtime.create_container_from_config.call_args.args
    assert body["Labels"]["suite.driver"] == this_driver() and body["Entrypoint"] == ["cat", "/opt/suite/sbom.cdx.json"]
    assert is_removed(runtime)


def test_an_image_that_talks_without_end_is_not_listened_to() -> None:
    runtime = runtime_of(itertools.repeat(bytes(1 << 20)))
    with pytest.raises(UsageError, match="/opt/suite/bin/python in image prints more than"):
        look_inside(runtime, "image")
    assert is_removed(runtime)


def test_an_image_without_the_suite_is_told_by_what_it_lacks_and_what_to_do() -> None:
    refused = (
        "failed to create task for container: OCI runtime create failed: runc create failed: "
        'unable to start container process: exec: "/opt/suite/bin/python": stat /opt/suite/bin/python: no such file or '
        "directory: unknown"
    )
    error = APIError("400 Client Error for http+docker://localhost/start: Bad Request", explanation=refused)
    runtime = runtime_of((), **{"start.side_effect": error})
    words = r'debian:12 cannot be run: exec: "/opt/suite/bin/python".*suite images build'
    with pytest.raises(UsageError, match=words) as told:
        look_inside(runtime, "debian:12")
    assert "400 Client Error" not in str(told.value)
    assert is_removed(runtime)
