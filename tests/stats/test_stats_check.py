"""The simulation of ``make stats-check`` on few plans, and that it tells what is broken."""

import pytest

from suite.stats import intervals

numpy = pytest.importorskip("numpy")

from benchmarks import stats_check  # noqa: E402

#: What chance adds or takes with so few plans, at most.
SLACK = 0.04
PLANS = 40


#: Left out: the rules that stop, which test_precision.py simulates.
TITLES = [title for title in stats_check.PARTS if not title.endswith("stopped")]


@pytest.mark.slow
@pytest.mark.parametrize("title", TITLES)
def test_what_is_promised_holds_in_a_small_simulation(title: str) -> None:
    lines = [line for line in stats_check.PARTS[title](PLANS) if line.bounds]
    assert lines
    outside = [line for line in lines if not line.bounds[0] - SLACK <= line.share <= line.bounds[1] + SLACK]
    assert not outside


def test_an_interval_without_students_t_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "student_quantile", lambda degrees: 1.5)
    lines = list(stats_check.coverage_lines(20))
    assert {line.holds for line in lines if line.what == "plain"} == {False}
    assert "FAILS" in stats_check.table("covered", lines)
