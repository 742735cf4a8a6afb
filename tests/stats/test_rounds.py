import math
import random

import pytest

from benchmarks.stopping import rule_of
from suite.stats.compare import compare
from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.moderated import moderate
from suite.stats.precision import Outlook, Sampled, judge
from suite.stats.rounds import APART_SECONDS, InTurns, Turn, compare_in_turns, fastest, find_rounds, paired, partners

#: Log seconds that the machine adds in each round.
ROUNDS = (0.0, 0.3, -0.2, 0.1, 0.25)


def row(
    place: int, logs: list[float], rounds: tuple[int, ...] = (), plan: str = "plan", start: float = 0.0, rows: int = 12
) -> InTurns:
    """Runs of the ``place``-th of some rows that take turns, every second round backwards, 10 s each."""
    numbers = rounds or tuple(range(1, len(logs) + 1))
    order = [place if number % 2 else rows - 1 - place for number in numbers]
    turns = [
        Turn(plan, number, start + 10.0 * (rows * number + one)) for number, one in zip(numbers, order, strict=True)
    ]
    return InTurns(tuple(RunSeconds(1.0, (math.exp(log),)) for log in logs), tuple(turns))


def rows_of(machine: tuple[float, ...], faster: float = 0.0, noise: float = 0.01, count: int = 12) -> list[InTurns]:
    """The first is faster by a share."""
    source = random.Random(3)
    gains = [math.log1p(faster)] + [0.0] * (count - 1)
    logs = [[added + source.gauss(0, noise) - gain for added in machine] for gain in gains]
    return [row(place, one, rows=count) for place, one in enumerate(logs)]


def in_pairs(rows: list[InTurns]) -> list[list[InTurns]]:
    return [rows[start : start + 2] for start in range(0, len(rows), 2)]


def test_what_rounds_have_in_common_is_not_in_the_interval_of_a_ratio() -> None:
    rows = rows_of(ROUNDS, faster=0.05)
    prior = moderate([log_rates(one.runs) for one in rows])
    rounds = find_rounds(in_pairs(rows), prior)
    assert rounds and rounds.prior and math.sqrt(rounds.prior.variance) == pytest.approx(math.sqrt(2) * 0.01, rel=0.3)
    within = compare_in_turns(rows[0], rows[1], prior=prior, rounds=rounds)
    assert (within.verdict, within.paired_rounds) == ("faster", 5)
    apart = compare(rows[0].runs, rows[1].runs, prior=prior)
    assert (apart.verdict, apart.paired_rounds) == ("not distinguishable", None)
    assert within.ratio.value == pytest.approx(apart.ratio.value)


def test_rounds_are_found_where_they_stand_out_clearly_and_of_two_rows_alone_more_so() -> None:
    rows = rows_of((0.0,) * 5)
    assert find_rounds(in_pairs(rows), moderate([log_rates(one.runs) for one in rows])) is None
    assert find_rounds([rows_of((0.0, 0.02, -0.02), count=2)], None) is None
    assert find_rounds([rows_of((0.0, 0.3, -0.3), count=2)], None) is not None


def test_the_ratio_is_the_mean_of_the_rounds_that_both_have() -> None:
    rows = rows_of(ROUNDS, noise=0.001)
    rounds = find_rounds(in_pairs(rows), None)
    missed = row(1, [0.1 + ROUNDS[0], 0.1 + ROUNDS[2], 0.1 + ROUNDS[3]], rounds=(1, 3, 4))
    assert rounds
    found = compare_in_turns(missed, row(0, list(ROUNDS)), rounds=rounds)
    assert found.paired_rounds == 3
    assert found.ratio.value == pytest.approx(math.exp(-0.1))


def test_a_row_that_missed_the_slow_rounds_is_not_the_fastest_for_that() -> None:
    rounds = find_rounds(in_pairs(rows_of(ROUNDS, noise=0.001)), None)
    always, missed = row(0, list(ROUNDS)), row(1, [0.05 + ROUNDS[0], 0.05 + ROUNDS[2], 0.05 + ROUNDS[3]], (1, 3, 4))
    assert fastest([always, missed], None) == 1
    assert fastest([always, missed], rounds) == 0


def test_rows_with_too_few_rounds_in_common_are_independent() -> None:
    rounds = find_rounds(in_pairs(rows_of(ROUNDS)), None)
    assert rounds
    a = row(0, list(ROUNDS))
    assert paired(a, row(1, [0.0, 0.1, 0.2], rounds=(4, 5, 6)), rounds) is None
    assert paired(a, row(1, [0.0, 0.1], rounds=(1, 2)), rounds)
    assert paired(a, row(1, [0.0]), rounds) is None


@pytest.mark.parametrize(
    "other",
    [
        row(1, list(ROUNDS), plan="another"),
        row(1, list(ROUNDS), start=APART_SECONDS + 600),
        row(1, list(ROUNDS), start=600),
        InTurns(row(1, list(ROUNDS)).runs, (None,) * 5),
        InTurns(row(1, list(ROUNDS)).runs, tuple(Turn("plan", number) for number in range(1, 6))),
    ],
    ids=["another plan", "hours later", "after all of the first", "no turns", "no times"],
)
def test_what_was_not_made_in_turns_has_no_partner(other: InTurns) -> None:
    assert partners(row(0, list(ROUNDS)), row(1, list(ROUNDS))) == [(index, index) for index in range(5)]
    assert partners(row(0, list(ROUNDS)), other) == []


def test_slow_runs_of_one_row_are_not_taken_for_rounds() -> None:
    source = random.Random(5)
    rows = [row(place, [source.gauss(0, 0.01) for _ in range(5)]) for place in range(12)]
    slow = [list(one.runs) for one in rows]
    for place in range(12):
        slow[place][place % 5] = RunSeconds(1.0, (1.1,))
    turned = [InTurns(tuple(runs), one.turns) for runs, one in zip(slow, rows, strict=True)]
    assert find_rounds(in_pairs(turned), None) is None


def judged(rows: list[InTurns], in_turns: bool) -> tuple[Outlook, ...]:
    """Pairs of rows by a rule that asks for differences, with their turns or without."""
    sampled = [
        Sampled(one.runs, 5, 1, index // 2, turns=one.turns if in_turns else ()) for index, one in enumerate(rows)
    ]
    return judge(sampled, rule_of(difference=0.05))


def test_a_difference_is_judged_within_rounds() -> None:
    rows = rows_of(ROUNDS, faster=0.10)
    outlook = judged(rows, in_turns=True)[1]
    assert outlook.state == "reached" and outlook.comparison
    assert (outlook.comparison.verdict, outlook.comparison.paired_rounds) == ("slower", 5)
    assert judged(rows, in_turns=False)[1].state != "reached"


def test_rounds_foretell_how_many_more_it_takes() -> None:
    rows = rows_of(ROUNDS, noise=0.06)
    within, apart = (max(one.more_runs or 0 for one in judged(rows, in_turns)) for in_turns in (True, False))
    assert 0 < within < apart
