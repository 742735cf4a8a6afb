"""The three sentences that a report begins with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.text.summary import sentences
from tests.report import entries as made

CASES = {
    "nothing": [],
    "one run": [made.entry()],
    "two backends, one run": [made.entry(), made.entry(backend="megatron")],
    "all failed": [made.failed(), made.failed("hang", backend="megatron")],
    "nothing counted": [made.failed("interrupted")],
    "from 1M to 66B": made.matrix(sizes=("1M", "1.3B", "66B"), device="cuda"),
    "many comparisons": made.matrix(sizes=("1M", "3M", "8M", "25M", "1.3B", "6.7B", "13B", "20B", "66B"), runs=3),
    "nothing known": [made.undescribed(made.failed())],
    "no interval": [made.entry(iterations=1)],
}


def summary(entries: list[Entry]) -> tuple[str, str, str]:
    return sentences(build(entries))


@pytest.mark.parametrize("entries", CASES.values(), ids=CASES)
def test_whatever_was_measured_there_are_three_sentences(entries: list[Entry]) -> None:
    told = summary(entries)
    assert len(told) == 3
    for sentence in told:
        assert sentence[0].isupper() and sentence.endswith(".")
        assert ". " not in sentence.replace("vs. ", "")
        assert not {"None", "nan", "inf"} & set(sentence.replace("(", " ").replace(")", " ").split())


run = st.builds(
    lambda well, asked: made.entry(**asked) if well else made.failed(**asked),
    st.booleans(),
    st.fixed_dictionaries(
        {
            "backend": st.sampled_from(["deepspeed", "megatron"]),
            "size": st.sampled_from(["1M", "3M"]),
            "ranks": st.sampled_from([1, 2]),
            "repeat": st.integers(1, 3),
            "kind": st.sampled_from(["engine", "trainer"]),
        }
    ),
)


@settings(max_examples=25)
@given(entries=st.lists(run, max_size=8, unique_by=lambda one: one.path))
def test_the_sentences_say_how_many_runs_ended_well(entries: list[Entry]) -> None:
    first, second, third = summary(entries)
    well = sum(one.record.status == "ok" for one in entries)
    if not entries:
        assert first.startswith("No run was found")
        return
    assert f"{well} of {len(entries)} run" in first
    assert ("did not succeed" in third) == (well < len(entries))
    assert ("there is no rate to compare" in second) == (well == 0)


def against(runs: int, others: int, **asked: Any) -> list[Entry]:
    """Runs of DeepSpeed at 20 samples/s, and of Megatron."""
    return [*made.repeats(runs, rate=20), *made.repeats(others, backend="megatron", **asked)]


ZERO3 = made.Layout(devices_per_node=2, data=2, zero_stage=3)
TRAINER = made.repeats(5, backend="trlx-deepspeed", kind="trainer")
#: Entries, with what the second sentence says of them and what it does not.
SECOND: dict[str, tuple[list[Entry], str, str]] = {
    "faster": (against(5, 5, rate=26), "On 1 rank megatron is faster at 1M (1.3", "provisional"),
    "indistinguishable": (against(5, 5, rate=20.01), "the rates are not distinguishable at 1M", "faster"),
    "too few runs": (against(2, 2, rate=40), "3 runs of each are needed to publish and 5 to rank", "faster"),
    "provisional": (against(3, 4, rate=40), "ranking takes 5 runs of each and some have 3", "too few"),
    "layouts": (
        made.repeats(5, ranks=2) + made.repeats(5, ranks=2, rate=30, layout=ZERO3),
        "deepspeed (zero3 dp2) is faster",
        "provisional",
    ),
    "engine and trainer": (made.repeats(5) + TRAINER, "nothing is ranked", "faster"),
}


@pytest.mark.parametrize(("entries", "said", "unsaid"), SECOND.values(), ids=SECOND)
def test_the_second_sentence_names_the_faster_as_far_as_its_runs_prove_it(
    entries: list[Entry], said: str, unsaid: str
) -> None:
    _, second, _ = summary(entries)
    assert said in second and unsaid not in second


def test_where_nothing_is_ranked_the_range_is_of_the_least_and_the_most() -> None:
    """The rows stand in another order: by backend and size."""
    sizes = {"1M": 11.7, "3M": 5.3, "8M": 7.8}
    entries = [one for size, rate in sizes.items() for one in made.repeats(5, size=size, rate=rate)]
    _, second, _ = summary(entries)
    assert "the rate is from 5.3" in second and "at 3M" in second and "at 8M" not in second, second
    assert second.index("at 3M") < second.index("to 11.7") < second.index("at 1M")


def test_the_faster_trainer_is_not_said_to_be_faster_than_an_engine() -> None:
    trainers = [
        *made.repeats(3, rate=9, backend="trlx-ddp", kind="trainer"),
        *made.repeats(3, rate=6, backend="trlx-deepspeed", kind="trainer"),
    ]
    first, second, _ = summary(made.repeats(3, rate=20) + trainers)
    assert "deepspeed (engine), trlx-ddp (trainer) and trlx-deepspeed (trainer)" in first
    assert second.startswith("On 1 rank (trainer backends) trlx-ddp is faster at 1M")
    assert "not ranked with 1 configuration of another kind" in second
    assert "could not be ranked" not in second
    assert "(trainer backends)" not in summary(trainers)[1]


def test_scaling_memory_and_failures_are_in_the_third() -> None:
    weak = made.repeats(3, rate=10, spread=0.001) + made.repeats(3, rate=16, spread=0.001, ranks=2)
    _, _, third = summary([*weak, made.failed(size="25M"), made.failed("hang", size="25M", repeat=2)])
    assert third.startswith("Weak scaling has eta(2; 1) = 0.8")
    assert "peak memory is 1.60 times the theoretical floor" in third
    assert third.endswith("2 runs did not succeed (1 hang and 1 oom_device).")
