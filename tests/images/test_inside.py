"""What an image gives of itself may be anything: a bounded part of plain files is taken."""

import itertools
import tarfile
from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import APIError

from suite.images.inside import copy_out, look_inside
from suite.launch.docker.session import this_driver
from suite.spec.base import UsageError
from tests.launch.docker.test_copying import archive


def runtime_of(pieces: Iterable[bytes], **more: Any) -> Mock:
    """One whose container gives these pieces, whatever is asked for."""
    answers = {
        "create_container_from_config.return_value": {"Id": "made"},
        "wait.return_value": {"StatusCode": 0},
        "logs.return_value": pieces,
        "get_archive.return_value": (pieces, None),
    }
    return Mock(**answers, **more)


def is_removed(runtime: Mock) -> bool:
    return [call.args for call in runtime.remove_container.call_args_list] == [("made",)]


def test_a_plain_file_is_copied_out_of_a_container_that_is_found_as_an_orphan_should_this_process_die() -> None:
    runtime = runtime_of([archive(("sbom.json", b"content"))])
    assert copy_out(runtime, "image", "/sbom.json") == b"content"
    (body,) = runtime.create_container_from_config.call_args.args
    assert body["Labels"]["suite.driver"] == this_driver()


ENDLESS = itertools.repeat(bytes(1 << 20))


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([archive(("sbom.json", "/etc/shadow"))], "/sbom.json of image is not a regular file"),
        ([archive(("sbom.json", ""), kind=tarfile.FIFOTYPE)], "/sbom.json of image is not a regular file"),
        ([b"no archive" * 100], "/sbom.json of image cannot be read"),
        ([], "/sbom.json of image"),
        (ENDLESS, "/sbom.json of image has more than the 67108864 bytes that are read"),
    ],
)
def test_anything_else_is_one_line_and_the_container_is_gone(pieces: Iterable[bytes], said: str) -> None:
    runtime = runtime_of(pieces)
    with pytest.raises(UsageError, match=said):
        copy_out(runtime, "image", "/sbom.json")
    assert is_removed(runtime)


def test_an_image_that_talks_without_end_is_not_listened_to() -> None:
    runtime = runtime_of(ENDLESS)
    with pytest.raises(UsageError, match="what /opt/suite/bin/python in image prints has more than"):
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
