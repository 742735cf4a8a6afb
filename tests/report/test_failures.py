"""Runs that did not end well."""

from __future__ import annotations

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from tests.report import entries as made


def test_runs_of_one_row_that_ended_alike_are_told_once_and_other_evidence_is_another_row() -> None:
    alike = [made.failed(repeat=repeat) for repeat in (1, 2, 3)]
    failures = build([*alike, made.failed(repeat=4, evidence=("CUDA error", "and more"))]).failures
    assert [(one.evidence, one.evidence_lines, len(one.run_ids), len(one.paths)) for one in failures] == [
        ("CUDA error", 2, 1, 1),
        ("RuntimeError: out of memory", 1, 3, 3),
    ]


def test_a_run_without_a_classified_failure_is_told_by_its_status() -> None:
    def unclassified(status: str) -> Entry:
        return made.recorded(made.failed(status, size=f"{len(status)}M"), failure=None)

    failures = build([unclassified("interrupted"), unclassified("unknown")]).failures
    assert sorted(one.kind for one in failures) == ["interrupted", "unknown"]
    assert {one.evidence for one in failures} == {None}
