"""Records of runs that took turns by iteration with others that were started together with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.derive import derive
from suite.bundle.files import DamagedBundle
from suite.bundle.store import Bundle
from suite.bundle.verify import verify_all
from suite.spec.manifest import Manifest
from tests.bundle.recorded import numbered
from tests.bundle.test_consistency import shifted
from tests.bundle.test_validity import noisy_ranks, on_host
from tests.synthetic import SHARES, driver_events, synthetic_manifest, write_bundle

STOLEN = on_host(steal_seconds=0.2)


def in_turns(**more: Any) -> Manifest:
    return synthetic_manifest(turns="iterations", iterations=4, **more)


def bundle_of(root: Path, manifest: Manifest, *others: Manifest, pause=0.0, disturbed=STOLEN, begins=()) -> Bundle:
    """Of a run that was disturbed, and that waited for ``pause`` seconds after each iteration. ``begins``: iterations
    that began a turn."""
    device = {"energy_counter_begin_joules": 0, "energy_counter_end_joules": 40, "samples": 9}
    ranks = noisy_ranks(manifest, disturbed, device=device if manifest.measure.device == "cuda" else None)
    for rank, events in ranks.items():
        for iteration in begins:
            first = next(place for place, event in enumerate(events) if event.get("iteration") == iteration)
            told = {"kind": "turn", "rank": rank, "iteration": iteration, "time": events[first - 1]["time"]}
            events.insert(first, told)
        ranks[rank] = numbered(events)
    for event in (event for events in ranks.values() for event in events):
        event["time"] += pause * (event.get("iteration") or 0)
    rows = sorted(each.run.id for each in (manifest, *others))
    driver = driver_events(manifest, "ok", turns={"start": "s1", "rows": rows} if others else None)
    driver[-1]["time"] += 60 * pause
    return Bundle(write_bundle(root, manifest, ranks, driver, {"host": {"host": "host-a"}, "suite": "0"}))


def test_a_run_in_turns_tells_with_whom_and_the_raw_seconds_of_its_phases(tmp_path: Path) -> None:
    manifest, other = in_turns(), in_turns(backend="megatron")
    turns = derive(bundle_of(tmp_path, manifest, other, pause=2.0)).turns
    assert (turns.start, turns.rows, turns.begins) == ("s1", (manifest.run.id, other.run.id), ())
    assert turns.phases["train"] == pytest.approx([SHARES["train"]] * 6)


def test_what_slows_all_that_take_turns_makes_none_of_them_suspect(tmp_path: Path) -> None:
    """A ratio within turns does not move by it. A run alone is suspect by the same events, as is one whose manifest
    says turns and whose driver tells of none."""
    manifest, other, alone = in_turns(), in_turns(backend="megatron"), synthetic_manifest(iterations=4)
    together = derive(bundle_of(tmp_path / "together", manifest, other, pause=2.0))
    assert together.validity.status == "valid"
    assert not any("went by between" in note for note in together.notes), "others had their turns meanwhile"
    for each in (alone, manifest):
        record = derive(bundle_of(tmp_path / "alone", each))
        assert (record.turns, record.validity.status) == (None, "suspect")


def test_others_that_want_the_same_cpus_make_a_run_in_turns_suspect(tmp_path: Path) -> None:
    """They slow rows unlike: who gives its CPU up often gets it back sooner."""
    manifest, other = in_turns(), in_turns(backend="megatron")
    record = derive(bundle_of(tmp_path, manifest, other, disturbed=on_host(busy_seconds=2.0)))
    assert record.validity.status == "suspect" and record.validity.reasons[0].startswith("others used 1.")


@pytest.mark.parametrize(
    ("begins", "counted"),
    [
        ((0, 1, 2, 3, 4, 5), (2, 3, 4, 5)),
        ((0, 1, 2), (3, 4, 5)),
        ((0, 1, 3, 5), (2, 4)),  # the last one was cut short
        ((), (2, 3, 4, 5)),
    ],
)
def test_the_first_iteration_of_a_turn_of_several_does_not_count(tmp_path, begins, counted):
    record = derive(bundle_of(tmp_path, in_turns(), in_turns(backend="megatron"), begins=begins))
    assert (record.counted, record.turns.begins) == (counted, begins)


@pytest.mark.parametrize(("begins", "joules"), [(range(6), 4 * 40), ((0, 3), 2 * 40)])
def test_the_energy_of_a_row_is_that_of_its_own_turns(tmp_path: Path, begins: Sequence[int], joules: int) -> None:
    """What other rows draw between two of its turns is theirs."""
    rows = [in_turns(device="cuda", precision="bf16", backend=name) for name in ("deepspeed", "megatron")]
    assert derive(bundle_of(tmp_path, *rows, begins=begins)).energy.joules == joules


@pytest.mark.parametrize(("others", "status"), [(1, "valid"), (2, "suspect")])
def test_a_gpu_that_more_than_the_rows_of_a_start_compute_on_is_a_doubt(tmp_path, others, status):
    rows = [in_turns(device="cuda", precision="bf16", backend=name) for name in ("deepspeed", "megatron")]
    events = noisy_ranks(rows[0], device={"other_processes": others})
    turns = {"start": "s1", "rows": [row.run.id for row in rows]}
    path = write_bundle(tmp_path, rows[0], events, driver_events(rows[0], "ok", turns=turns))
    validity = derive(Bundle(path)).validity
    strangers = ("others computed on the GPU of rank 0, 1 processes at most",)
    assert (validity.status, validity.reasons) == (status, strangers if status == "suspect" else ())


ALONE = synthetic_manifest(iterations=4)


@pytest.mark.parametrize(
    ("manifest", "turns", "says"),
    [
        (in_turns(), {"start": "s1", "rows": ["another-run"]}, "take turns with"),
        (ALONE, {"start": "s1", "rows": [ALONE.run.id, "another-run"]}, "take turns with"),
        (in_turns(), {"start": "", "rows": ["a"]}, "turns is"),
        (in_turns(), {"start": "s", "rows": ["a", "a"]}, "turns is"),
        (in_turns(), {"rows": []}, "turns is"),
        (in_turns(), 3, "turns is"),
    ],
    ids=["of others", "of a run alone", "no start", "a row twice", "no rows", "a number"],
)
def test_turns_that_the_manifest_does_not_know_or_of_another_form_are_damage(tmp_path, manifest, turns, says):
    path = write_bundle(tmp_path, manifest, noisy_ranks(manifest), driver_events(manifest, "ok", turns=turns))
    with pytest.raises(DamagedBundle, match=says):
        derive(Bundle(path))


def test_runs_of_one_start_may_be_at_work_at_one_time(tmp_path: Path) -> None:
    rows = in_turns(), in_turns(backend="megatron")
    together = [bundle_of(tmp_path / "together", row, *(other for other in rows if other is not row)) for row in rows]
    apart = [bundle_of(tmp_path / "apart", row) for row in rows]
    for bundles, expected in ((together, set()), (apart, {"overlapping-runs"})):
        for bundle, later in zip(bundles, (0.0, 1.0), strict=True):
            shifted(bundle.path, later)
        found = verify_all(bundles)
        assert {finding.name for _, each in found for finding in each.findings} == expected
