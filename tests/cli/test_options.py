"""What a user types, read into values."""

from __future__ import annotations

import pytest

from suite.cli.options.reading import rank_counts
from suite.spec.base import UsageError


def test_all_ranks_are_as_many_as_there_are_places() -> None:
    assert rank_counts(["1", "all", "4"], most=8) == (1, 8, 4)


@pytest.mark.parametrize("text", ["some", "-1", "1.5", ""])
def test_what_is_no_number_of_ranks_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(UsageError, match="a number or all"):
        rank_counts([text], most=8)


def test_no_rank_at_all_is_refused_in_the_users_words() -> None:
    with pytest.raises(UsageError, match="--ranks is at least 1, not 0"):
        rank_counts(["2", "0"], most=8)
