"""Distributions of lengths: what is read, what is drawn, what is refused."""

import os
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from suite.spec.base import UsageError
from suite.spec.lengths import MOST_LISTED, Lengths


def lengths(text: str) -> Lengths:
    return Lengths.model_validate(text)


@given(st.floats(0, 2), st.integers(1, 1000), st.integers(0, 1 << 40))
def test_the_mean_before_the_cap_is_the_asked_one_also_of_a_small_batch(sigma, samples, seed):
    drawn = lengths(f"lognormal:mean=512,sigma={sigma:f},cap=1000000").draw(samples, 1, seed)
    assert fmean(drawn) == pytest.approx(512, rel=0.002)


def test_spread_and_quantiles_are_the_distributions():
    drawn = sorted(lengths("lognormal:mean=512,sigma=0.6,cap=1000000").draw(2000, 1, seed=3))
    median = 512 * 2.718281828 ** (-(0.6**2) / 2)
    assert drawn[1000] == pytest.approx(median, rel=0.01)
    assert drawn[1800] == pytest.approx(median * 2.718281828 ** (0.6 * 1.2816), rel=0.01)
    assert drawn[1980] == pytest.approx(median * 2.718281828 ** (0.6 * 2.3263), rel=0.03)


def test_what_the_seed_changes_is_which_sample_is_long_not_how_long_samples_are():
    text = "lognormal:mean=50,sigma=0.6,cap=90,at-cap=0.1"
    one, two = (lengths(text).draw(40, 4, seed) for seed in (1, 2))
    assert one != two
    assert sorted(one) == sorted(two)
    assert max(one) == 90


@given(
    st.floats(1, 200), st.floats(0, 3), st.integers(200, 400), st.floats(0, 1), st.floats(0, 1),
    st.integers(1, 40), st.integers(1, 8), st.integers(0, 2**40),
)  # fmt: skip
def test_every_length_is_at_least_one_and_at_most_the_cap(mean, sigma, cap, at_cap, correlation, samples, group, seed):
    made = Lengths(kind="lognormal", mean=mean, sigma=sigma, cap=cap, at_cap=at_cap, group_correlation=correlation)
    drawn = made.draw(samples, group, seed)
    assert len(drawn) == samples and all(1 <= length <= cap for length in drawn)
    assert sum(length == cap for length in drawn) >= round(at_cap * samples)


@pytest.mark.parametrize(("at_cap", "capped"), [(0, 0), (0.1, 10), (0.33, 33), (1, 100)])
def test_the_asked_share_lies_at_the_cap(at_cap, capped):
    drawn = lengths(f"lognormal:mean=100,sigma=0.3,cap=4096,at-cap={at_cap}").draw(100, 1, 1)
    assert drawn.count(4096) == capped
    others = [length for length in drawn if length != 4096]
    assert not others or fmean(others) == pytest.approx(100, rel=0.01), "the mean is of the others"


def within(drawn: tuple[int, ...], group: int) -> float:
    """Share of the spread that is within groups."""
    groups = [drawn[first : first + group] for first in range(0, len(drawn), group)]
    return fmean(pstdev(each) ** 2 for each in groups) / pstdev(drawn) ** 2


def test_lengths_of_a_group_are_as_alike_as_asked():
    text = "lognormal:mean=1000,sigma=0.3,cap=100000,group-correlation={}"
    alike = [within(lengths(text.format(share)).draw(1600, 8, 1), 8) for share in (0, 0.5, 1)]
    assert alike[0] == pytest.approx(7 / 8, abs=0.05)
    assert alike[1] == pytest.approx(7 / 16, abs=0.06)
    assert alike[2] == 0
    for share in (0, 0.5, 1):
        assert fmean(lengths(text.format(share)).draw(80, 8, 1)) == pytest.approx(1000, rel=0.002)


def test_lengths_depend_on_nothing_but_what_is_asked():
    """Other lengths would be other work under the same name."""
    drawn = lengths("lognormal:mean=60,sigma=0.8,cap=200,at-cap=0.1").draw(20, 4, 7)
    assert drawn == (18, 104, 9, 25, 29, 41, 200, 46, 200, 200, 75, 33, 22, 14, 66, 52, 37, 133, 58, 87)


def test_a_list_is_dealt_in_order_again_and_again(tmp_path, monkeypatch):
    (tmp_path / "own").write_bytes(b"\xef\xbb\xbf5, 7\n9\t\r\n,")
    monkeypatch.chdir(tmp_path)
    assert lengths("list:own").draw(5, 1, 0) == (5, 7, 9, 5, 7)
    assert lengths(f"list:{tmp_path}/own").longest == 9


def test_files_that_hold_no_lengths_are_refused_in_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(bytes(range(128, 256)))
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "words").write_text("12 twelve")
    (tmp_path / "zero").write_text("0")
    (tmp_path / "many").write_text("1 " * (MOST_LISTED + 1))
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    words = {
        "pipe": "is not a regular file",
        "": "is not a regular file",
        "nothing": "there is no file",
        "binary": "is not UTF-8 text",
        "empty": "at least 1 item",
        "words": "'twelve' in .* is no whole number",
        "zero": "greater than 0",
        "many": "at most 100000 items",
        "huge": "more than the 1600000 that are read",
    }
    for name, said in words.items():
        with pytest.raises((UsageError, ValidationError), match=said):
            lengths(f"list:{tmp_path / name}")
    with pytest.raises((UsageError, ValidationError), match=r"there is no file|cannot read"):
        lengths("list:~nobody-of-this-name/lengths")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("garbage", "is no distribution of lengths; write fixed:512"),
        ("fixed:", "no whole number"),
        ("fixed:0", "greater than 0"),
        ("fixed:99999999999", "no whole number"),
        ("lognormal:mean=6,sigma=0.6", "need cap"),
        ("lognormal:mean=6,sigma=0.6,cap=5", "lengths of mean 6 cannot be at most 5 each"),
        ("lognormal:mean=6,sigma=-1,cap=8", "greater than or equal to 0"),
        ("lognormal:mean=nan,sigma=1,cap=8", "is no number"),
        ("lognormal:mean=6,mean=7,sigma=1,cap=8", "cannot be read"),
        ("lognormal:mean=6,sigma=1,cap=8,at-cap=2", "less than or equal to 1"),
    ],
)
def test_what_is_no_distribution_is_refused_in_one_line(text, said):
    with pytest.raises((UsageError, ValidationError), match=said):
        lengths(text)


@pytest.mark.parametrize(
    "text", ["fixed:512", "lognormal:mean=512,sigma=0.6,cap=4096", "lognormal:mean=6,sigma=0.35,cap=8,at-cap=0.1"]
)
def test_a_distribution_is_told_as_it_is_typed(text):
    assert lengths(text).text() == text
