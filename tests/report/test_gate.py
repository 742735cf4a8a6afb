"""What a gate says of runs that doubt themselves, and what else it rests on."""

from __future__ import annotations

import pytest

from suite.bundle.noise_model import Validity
from suite.report.compare import compare_entries
from suite.report.comparing.gate import hold_to
from suite.report.facts.environment import facts_of
from tests.report import entries as made

SUSPECT = Validity.model_validate({"status": "suspect", "reasons": ("load 12 on 2 CPUs",)})


@pytest.mark.parametrize(("rate", "decided"), [(20, "met"), (10, "slower")])
def test_suspect_runs_make_it_doubtful_unless_they_are_to_count(rate: float, decided: str) -> None:
    after = [made.recorded(one, validity=SUSPECT) for one in made.repeats(4, 11, rate=rate)]
    result = compare_entries(made.repeats(4), after)
    assert hold_to(result, 0.8)[1].outcome == "doubtful"
    assert hold_to(result, 0.8)[1].doubts == ("suspect runs",)
    counting = compare_entries(made.repeats(4), [*after, *made.repeats(2, 21, rate=rate)], with_suspect=True)
    assert counting.rows[0].runs_after == 6 and not counting.unjudged
    assert hold_to(counting, 0.8, with_suspect=True)[1].outcome == decided


def test_a_row_that_is_lost_leaves_the_gate_undecided_and_a_slower_one_decides_it() -> None:
    before = [*made.repeats(4), *made.repeats(4, size="3M")]
    assert hold_to(compare_entries(before, made.repeats(4, 11)), 0.8)[1].outcome == "undecided"
    assert hold_to(compare_entries(before, made.repeats(4, 11, rate=10)), 0.8)[1].outcome == "slower"


def test_code_is_told_with_version_commit_and_where_it_lies() -> None:
    told = {"digest": "0123456789abcdef", "commit": "3340c2f3a56d" + 28 * "0", "changed": True, "editable": True}
    facts = {**made.CPU_FACTS, "code": {"deepspeed": told, "torch": {"digest": "f" * 16}}}
    found = facts_of([made.entry(facts=facts).record])
    words = "0.19.8 01234567 (commit 3340c2f3a56d with changes, editable)"
    assert found["deepspeed code"] == ("version", (words,)) and found["torch code"][1] == ("2.13.0 ffffffff",)
