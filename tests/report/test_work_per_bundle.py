"""A report's work grows in step with its bundles: counted in calls of functions, which no busy machine changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from suite.bundle.cache import records, signature
from suite.bundle.facts import NEWEST_DERIVATION
from suite.report.facts.model import build
from suite.report.reading import read_entries
from tests.bundle.recorded import TWO_RANKS, calls_of
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

FEW, SOME, MANY = 4, 8, 16


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each number of repeats of one manifest."""
    root = tmp_path_factory.mktemp("runs")
    for count in (FEW, SOME, MANY):
        for repeat in range(1, count + 1):
            manifest = synthetic_manifest(repeat=repeat, layout=TWO_RANKS)
            noise = Random(repeat)
            seconds = [[1 + noise.gauss(0, 0.01) for _ in range(10)] for _ in range(2)]
            facts = {**facts_of(manifest), "derivation": NEWEST_DERIVATION}
            make_bundle(root / str(count), manifest, lambda at, rank, seconds=seconds: seconds[rank][at], facts=facts)
    return root


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and bundles that count as old enough to be kept."""
    monkeypatch.setenv("SUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(signature, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(records, "code_key", lambda: b"code")


def grows_in_step(work: Callable[[int], Any], more: float) -> bool:
    """Whether one bundle more takes as many calls among many as among few."""
    work(FEW)  # what is done once in a process
    few, some, many = (calls_of(lambda count=count: work(count)) for count in (FEW, SOME, MANY))
    return (many - some) / (MANY - SOME) <= more * (some - few) / (SOME - FEW)


@pytest.mark.parametrize("cache", ["kept", "off"])
def test_reading(root: Path, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if cache == "off":
        monkeypatch.setenv("SUITE_CACHE", "off")
    for count in (FEW, SOME, MANY):
        assert len(read_entries([root / str(count)]).entries) == count
    assert grows_in_step(lambda count: read_entries([root / str(count)]), 1.05)


def test_pooling(root: Path) -> None:
    entries = {count: read_entries([root / str(count)]).entries for count in (FEW, SOME, MANY)}
    assert grows_in_step(lambda count: build(entries[count]), 1.2), "by what sorting and bisecting do with the values"
