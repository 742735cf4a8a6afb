"""What a gate says of runs that doubt themselves, and how code is told."""

from __future__ import annotations

import pytest

from suite.report.compare import compare_entries
from suite.report.comparing.gate import hold_to
from suite.report.facts.environment import facts_of
from tests.report import entries as made
from tests.report.test_rows_in_doubt import doubtful


@pytest.mark.parametrize(("rate", "decided"), [(20, "met"), (10, "slower")])
def test_suspect_runs_make_it_doubtful_unless_they_are_to_count(rate: float, decided: str) -> None:
    after = list(map(doubtful, made.repeats(4, 11, rate=rate)))
    found = hold_to(compare_entries(made.repeats(4), after), 0.8)[1]
    assert (found.outcome, found.doubts) == ("doubtful", ("suspect runs",))
    counting = compare_entries(made.repeats(4), [*after, *made.repeats(2, 21, rate=rate)], with_suspect=True)
    assert counting.rows[0].runs_after == 6 and not counting.unjudged
    assert hold_to(counting, 0.8, with_suspect=True)[1].outcome == decided


def test_a_loss_as_large_as_the_gate_allows_is_one_where_the_gate_is_strict() -> None:
    compared = compare_entries(made.repeats(6), made.repeats(6, 11, rate=19.4))
    assert 0.965 < compared.rows[0].ratio < 0.975
    strict, lenient = hold_to(compared, 0.97, strict=True)[1], hold_to(compared, 0.97)[1]
    assert (strict.outcome, strict.missed, strict.lost) == ("slower", 0, 1)
    assert lenient.outcome == "met"


def test_code_is_told_with_version_commit_and_where_it_lies() -> None:
    told = {"digest": "0123456789abcdef", "commit": "3340c2f3a56d" + 28 * "0", "changed": True, "editable": True}
    found = facts_of([made.entry(facts={**made.CPU_FACTS, "code": {"deepspeed": told}}).record])
    assert found["deepspeed code"][1] == ("0.19.8 01234567 (commit 3340c2f3a56d with changes, editable)",)
