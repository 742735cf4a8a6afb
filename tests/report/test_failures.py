from __future__ import annotations

from suite.launch.next_step import next_step
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from tests.report import entries as made


def test_every_run_that_did_not_end_well_is_in_a_row() -> None:
    entries = [*made.matrix(sizes=("1M",), runs=1), made.failed(size="8M"), made.failed("hang", size="8M", repeat=2)]
    failures = build(entries).failures
    assert [(one.kind, one.phase, len(one.run_ids)) for one in failures] == [
        ("hang", "train", 1),
        ("oom_device", "train", 1),
    ]
    assert all(one.next_step == next_step(one.kind) for one in failures)


def test_runs_of_one_row_that_ended_alike_are_told_once_with_their_number() -> None:
    (failure,) = build([made.failed(repeat=repeat) for repeat in (1, 2, 3)]).failures
    assert len(failure.run_ids) == len(failure.paths) == 3
    assert failure.evidence == "RuntimeError: out of memory"


def test_other_evidence_is_another_row() -> None:
    entries = [made.failed(repeat=1), made.failed(repeat=2, evidence=("CUDA error", "and more"))]
    assert [(one.evidence, one.evidence_lines) for one in build(entries).failures] == [
        ("CUDA error", 2),
        ("RuntimeError: out of memory", 1),
    ]


def test_a_run_without_a_classified_failure_is_told_by_its_status() -> None:
    def unclassified(status: str) -> Entry:
        entry = made.failed("interrupted" if status == "interrupted" else "unknown", size=f"{len(status)}M")
        return Entry(entry.manifest, entry.record.model_copy(update={"failure": None}), entry.path)

    failures = build([unclassified("interrupted"), unclassified("failed")]).failures
    assert sorted(one.kind for one in failures) == ["interrupted", "unknown"]
    assert {one.evidence for one in failures} == {None}
