"""Bundles that earlier versions of the suite measured derive to the records that those versions stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.bundle.events import read_events
from suite.bundle.facts import derivation
from suite.bundle.store import Bundle
from suite.bundle.verify import verify

OLDER = sorted(path for path in (Path(__file__).parent / "older").iterdir())


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.name)
def test_a_bundle_of_an_earlier_version_verifies(path: Path) -> None:
    bundle = Bundle(path)
    assert derivation(read_events(path / "events", bundle.manifest())) == 1
    found = verify(bundle)
    assert (found.status, found.differences) == ("equal", ())


def test_there_are_some() -> None:
    assert len(OLDER) == 2
