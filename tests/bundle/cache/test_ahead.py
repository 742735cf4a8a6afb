"""Many new bundles are derived in processes of their own, and are then as if each had been asked for alone."""

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import suite.bundle.cache.reading as reading
import suite.bundle.cache.table as table
from suite.report.listing import DAMAGED, read_listing
from suite.report.reading import read_entries
from tests.synthetic import make_bundle, synthetic_manifest


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five runs, of which one is damaged."""
    monkeypatch.setattr("suite.bundle.cache.survey.SETTLED_SECONDS", 0.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    for repeat in range(1, 6):
        make_bundle(tmp_path / "runs", synthetic_manifest(repeat=repeat), float(repeat))
    (min((tmp_path / "runs").iterdir()) / "manifest.json").write_text("{")
    return tmp_path / "runs"


def few(monkeypatch: pytest.MonkeyPatch, many: int, cache: Path) -> None:
    monkeypatch.setenv("SUITE_CACHE", str(cache))
    monkeypatch.setattr(table, "MANY", many)


def test_a_list_is_the_same_and_is_not_derived_in_its_own_process(runs, tmp_path, monkeypatch):
    few(monkeypatch, 1000, tmp_path / "one")
    alone = read_listing([runs])
    few(monkeypatch, 3, tmp_path / "many")
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("suite.report.listing._TOLD_EVERY", 1)
    own, examined = os.getpid(), reading.examined

    def elsewhere(*asked: Any) -> Any:
        assert os.getpid() != own
        return examined(*asked)

    monkeypatch.setattr(reading, "examined", elsewhere)
    assert read_listing([runs], lambda done, total: told.append((done, total))) == alone
    assert [run["status"] for run in alone[0]].count(DAMAGED) == 1
    assert told and told[0] == (1, 5)
    here: list[Path] = []
    monkeypatch.setattr(reading, "examined", lambda *asked: here.append(asked[0].path) or examined(*asked))
    assert read_listing([runs]) == alone and here == [min(runs.iterdir())], "what was kept is found again"


def test_a_report_is_the_same(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch, 1000, tmp_path / "one")
    alone = read_entries([runs])
    few(monkeypatch, 3, tmp_path / "many")
    found = read_entries([runs])
    assert found.entries == alone.entries and found.damaged == alone.damaged and len(found.entries) == 4
    assert read_entries([runs]).entries == alone.entries, "what was kept is found again"
    monkeypatch.setenv("SUITE_CACHE", "off")
    assert read_entries([runs]).entries == alone.entries


def test_a_process_that_is_killed_costs_time_and_no_run(runs, tmp_path, monkeypatch):
    few(monkeypatch, 1000, tmp_path / "one")
    alone = read_listing([runs])
    few(monkeypatch, 3, tmp_path / "many")
    own, read_once = os.getpid(), reading.read_once
    monkeypatch.setattr(
        reading,
        "read_once",
        lambda bundle: read_once(bundle) if os.getpid() == own else os.kill(os.getpid(), signal.SIGKILL),
    )
    assert read_listing([runs]) == alone


def rates_of(runs: Path) -> list[float]:
    """As a process of its own reads them, three times over."""
    for _ in range(3):
        found = [entry.record.throughput for entry in read_entries([runs]).entries]
    return [rates.samples_per_second.value for rates in found if rates is not None]


def test_readers_at_one_time_all_get_what_they_would_alone(runs, tmp_path, monkeypatch):
    few(monkeypatch, 1000, tmp_path / "cache")
    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as readers:
        told = list(readers.map(rates_of, [runs] * 3))
    assert told == [pytest.approx([4 / repeat for repeat in range(2, 6)])] * 3
