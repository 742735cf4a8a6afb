"""Bundles that earlier versions of the suite measured derive to the records that those versions stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.bundle.facts import derivation
from suite.bundle.store import Bundle
from suite.bundle.verify import verify

#: By which rules their worker asked to be derived; the first is of the first version that published any.
FORMS = {
    "deepspeed-1M-n1-08b37050-r1": 1,
    "deepspeed-1M-n2-e4ae0202-r1": 1,
    "megatron-8M-n1-870c15b0-r1": 1,
    "megatron-1M-n2-3eb382ec-r1": 2,
    "deepspeed-8M-llama-n1-e6416f31-r1": 2,
}
OLDER = sorted(path for path in (Path(__file__).parent / "older").iterdir())


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.name)
def test_a_bundle_of_an_earlier_version_verifies(path: Path) -> None:
    bundle = Bundle(path)
    assert derivation(bundle.events()) == FORMS[path.name]
    found = verify(bundle)
    assert (found.status, found.differences) == ("equal", ())


def test_there_are_some() -> None:
    assert {path.name for path in OLDER} == FORMS.keys()
