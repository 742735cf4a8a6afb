"""Lists of what images hold: kept once, and in the archive of every run of such an image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.bundle.archive.packing import Packing, pack
from suite.bundle.archive.sboms import check_sbom, keep_sbom
from suite.bundle.archive.zip_file import Reader
from suite.bundle.store import Bundle
from suite.spec.base import UsageError
from tests.command import suite
from tests.synthetic import make_bundle, synthetic_manifest

IDS = [f"sha256:{digit * 64}" for digit in "abc"]
LIST = json.dumps({"bomFormat": "CycloneDX", "components": []}).encode()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs in two images, and one in none."""
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    for repeat, image in ((1, IDS[0]), (2, IDS[1]), (3, None)):
        bundle = Bundle(make_bundle(tmp_path / "runs", synthetic_manifest(repeat=repeat), float(repeat)))
        bundle.write_environment({"image": {"id": image, "reference": "engines"}} if image else {})
    return tmp_path / "runs"


def packed(runs: Path) -> tuple[str, ...]:
    return pack(runs, runs.parent / "results.suite.zip", Packing(keep_identity=True)).index.sboms


def test_a_kept_list_is_taken_along_with_runs_of_its_image_and_no_other(runs: Path) -> None:
    assert packed(runs) == ()
    for image_id in (IDS[0], IDS[2]):
        keep_sbom(image_id, LIST)
    assert packed(runs) == ("sboms/aaaaaaaaaaaa.cdx.json",)
    with (runs.parent / "results.suite.zip").open("rb") as file:
        contents = {one.path: b"".join(blocks) for one, blocks in Reader(file, "it").files()}
    assert contents["sboms/aaaaaaaaaaaa.cdx.json"] == LIST
    done = suite("pack", runs, "-o", runs.parent / "b.suite.zip", "--keep-identity")
    assert "lists of what images hold: sboms/aaaaaaaaaaaa.cdx.json" in done.stdout


@pytest.mark.parametrize("text", ["{", "[]", '{"bomFormat": "SPDX"}'])
def test_what_is_no_list_is_not_taken(runs: Path, text: str) -> None:
    keep_sbom(IDS[0], text.encode())
    assert packed(runs) == ()
    with pytest.raises(UsageError):
        check_sbom(text.encode(), "it")


@pytest.mark.parametrize("image_id", ["../../x", "sha256:x", "None", "sha256:" + "a" * 63])
def test_an_id_that_is_none_leads_nowhere(runs: Path, tmp_path: Path, image_id: str) -> None:
    before = set(tmp_path.rglob("*.json"))
    keep_sbom(image_id, LIST)
    assert set(tmp_path.rglob("*.json")) == before


def test_without_a_cache_nothing_is_kept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUITE_CACHE", "off")
    keep_sbom(IDS[0], LIST)
    assert packed(runs) == ()
