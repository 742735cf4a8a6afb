"""Every bundle that the repository ships, of whatever version, derives to the record that was stored with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.bundle.facts import derivation
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify_all

ROOT = Path(__file__).resolve().parents[2]
OLDER = ROOT / "tests/bundle/older"
RESULTS = sorted((ROOT / "docs/results").glob("*/runs"))
#: By which rules the workers of earlier versions asked to be derived; the first is of the first version that published.
RULES = {
    "deepspeed-1M-n1-08b37050-r1": 1,
    "deepspeed-1M-n2-e4ae0202-r1": 1,
    "megatron-8M-n1-870c15b0-r1": 1,
    "megatron-1M-n2-3eb382ec-r1": 2,
    "deepspeed-8M-llama-n1-e6416f31-r1": 2,
}


@pytest.mark.parametrize("folder", [*RESULTS, OLDER], ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_a_shipped_bundle_verifies_and_nothing_is_found_in_it_or_beside_it(folder: Path) -> None:
    checked = {bundle.path: found for bundle, found in verify_all(find_bundles([folder]))}
    assert checked.keys() == {path.parent for path in folder.rglob("record.json")} and checked
    bad = {path.name: found for path, found in checked.items() if found.status != "equal" or found.findings}
    assert bad == {}


def test_all_shipped_bundles_are_verified_and_earlier_versions_are_among_them() -> None:
    shipped = {path.parent.parent for path in ROOT.joinpath("docs").rglob("record.json")}
    assert shipped == set(RESULTS) and len(RESULTS) >= 3
    assert {path.name: derivation(Bundle(path).events()) for path in OLDER.iterdir()} == RULES
