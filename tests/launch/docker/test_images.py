"""The image of a run as the runtime describes it, without a runtime."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from docker.errors import ImageNotFound

from suite.launch.docker.images import digest_in, find_image
from suite.spec.base import UsageError

HEX, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("reference", "digests", "found"),
    [
        ("lab:5000/suite-engines:0.1.0", (f"mirror/suite-engines@{OTHER}", f"lab:5000/suite-engines@{HEX}"), 1),
        (f"lab:5000/suite-engines@{HEX}", (f"lab:5000/suite-engines@{HEX}",), 0),
        ("team/suite-engines", (f"team/suite-engines@{HEX}",), 0),
        ("docker.io/team/suite-engines:2", (f"team/suite-engines@{HEX}",), 0),
        ("suite-engines:0.1.0", (f"lab:5000/suite-engines@{HEX}",), None),
        ("suite-engines:0.1.0", (f"localhost/suite-engines@{HEX}",), None),
        (HEX, (f"lab:5000/suite-engines@{OTHER}",), None),
        ("lab:5000/suite-engines", (), None),
    ],
)
def test_a_digest_is_that_of_the_repository_that_was_asked_for(
    reference: str, digests: tuple[str, ...], found: int | None
) -> None:
    assert digest_in(reference, digests) == (None if found is None else digests[found])


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("suite-trl-ppo:9", "build it: suite images build trl-ppo$"),
        ("mine:1", "there is no image mine:1 on this runtime; `suite images list` shows"),
    ],
)
def test_only_what_the_catalogue_has_can_be_built(reference: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        find_image(Mock(**{"api.inspect_image.side_effect": ImageNotFound("none")}), reference, "missing", print)
