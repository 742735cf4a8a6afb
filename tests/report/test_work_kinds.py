"""Rows of different work: told apart in every table, ranked among themselves, and named where folders are compared."""

import re
from dataclasses import replace
from typing import Any

import pytest

from suite.report.compare import compare_entries
from suite.report.facts.entry import Entry
from suite.report.facts.kind import FAMILIES
from suite.report.facts.model import build
from suite.report.plots.series import backend_colours, series_of
from suite.report.terminal import print_headline
from suite.report.text.markdown import render
from suite.spec.layout import Layout
from suite.spec.manifest import SampleLengths
from suite.spec.shape import Architecture
from tests.report import entries as made
from tests.report.conftest import Columns
from tests.report.reports import families

LLAMA: dict[str, Any] = {"size": "1M-llama", "ranks": 2}
VLLM = Layout(devices_per_node=2, data=2, zero_stage=2, generation="vllm")


def section(text: str, heading: str) -> str:
    """What is below one heading of the report; empty where there is none."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def on_llama(runs: int = 3, **asked: Any) -> list[Entry]:
    return made.repeats(runs, **{**LLAMA, "work": made.grpo(), **asked})


def test_every_family_of_shapes_has_a_name() -> None:
    assert set(FAMILIES) == set(Architecture.__args__)


def test_rows_of_each_kind_are_ranked_in_a_table_of_their_own_under_a_line_of_their_work() -> None:
    text = section(render(build(families()), {}), "Ranking")
    ppo, grpo = re.split(r"\nGRPO in groups of 4 on Llama, responses lognormal:[^\n]*:\n", text)
    assert "\nPPO on GPT-2:\n" in ppo
    assert "1M-llama" not in ppo and "| 1M " not in grpo
    assert [line.split("|")[3].strip() for line in ppo.splitlines() if "| faster " in line] == ["R2", "R4"]


def test_samples_of_other_lengths_are_never_ranked_together_even_where_the_distribution_is_the_same() -> None:
    """The hash of the work has the seed of the lengths, not the lengths that a version of the suite drew by it."""

    def shuffled(one: Entry) -> Entry:
        drawn = one.manifest.work.lengths
        lengths = SampleLengths(prompt=drawn.prompt, response=drawn.response[::-1])
        work = one.manifest.work.model_copy(update={"lengths": lengths})
        return replace(one, manifest=one.manifest.model_copy(update={"work": work, "hash": "0" * 64}))

    both = [*on_llama(), *on_llama(backend="megatron")]
    assert len(build(both).ranking.groups) == 1
    model = build([*both[:3], *map(shuffled, both[3:])])
    assert not model.ranking.groups and len({row.lengths_hash for row in model.rows}) == 2
    assert len({row.work_hash for row in model.rows}) == 1


def test_what_the_longest_sample_costs_is_a_mean_over_runs_that_all_tell() -> None:
    runs = [
        *on_llama(1, rollout={"idle_slot_seconds": 0.2, "idle_slot_share": 0.5}, spread=0),
        made.entry(**LLAMA, work=made.grpo(), repeat=2, rollout={"idle_slot_seconds": 0.4}, spread=0),
    ]
    found = build(runs).rows[0].unevenness
    assert found is not None
    assert found.idle_slot_seconds == pytest.approx(0.3) and found.idle_slot_share is None
    assert re.search(r"\| +0.300 \| +19 \|", section(render(build(runs), {}), "Lengths and padding")), "of 1.6 s"


def test_the_memory_of_an_engine_is_shown_by_phase_although_sync_has_no_floor() -> None:
    (row,) = build(on_llama(2, layout=VLLM)).rows
    assert row.memory is not None
    by_phase = {one.name: one for one in row.memory.by_phase}
    assert list(by_phase) == ["sync", "generate", "train"]
    assert (by_phase["sync"].floor_bytes, by_phase["sync"].efficiency) == (None, None)
    assert by_phase["sync"].peak_bytes == by_phase["generate"].peak_bytes < by_phase["train"].peak_bytes


def test_lines_of_a_picture_are_named_by_algorithm_and_family_where_backends_have_both() -> None:
    rows = build(families()).rows
    labels = {line.label for line in series_of(rows, backend_colours(rows))[0]}
    assert {"deepspeed zero2 PPO GPT-2", "deepspeed zero2 GRPO Llama", "megatron dist-opt PPO GPT-2"} <= labels


@pytest.mark.parametrize("width", [80, 100, None])
def test_the_headline_has_a_table_for_each_kind_of_work(width: int | None, columns: Columns) -> None:
    lines = columns(width, lambda: print_headline(build(families())))
    assert width is None or max(map(len, lines)) <= width
    ppo, grpo = "\n".join(lines).split("GRPO in groups of 4 on Llama")
    assert ppo.startswith("PPO on GPT-2:") and "llama" not in ppo
    assert grpo.count("1M-llama") == 5


def test_compare_names_rows_that_look_alike_and_did_other_work() -> None:
    before = [*made.repeats(2), *made.repeats(2, size="3M"), *made.repeats(2, size="8M")]
    after = [
        *made.repeats(2, first=11),
        *made.repeats(2, size="3M", work=made.workload(algorithm="grpo", group=4)),
        *made.repeats(2, size="8M", work=made.workload(rollouts=16)),
        *made.repeats(2, size="25M"),
    ]
    found = compare_entries(before, after)
    assert [row.size for row in found.rows] == ["1M"]
    assert found.other_work == (
        "deepspeed 3M zero2 on 1 rank: PPO on GPT-2 / GRPO in groups of 4 on GPT-2",
        "deepspeed 8M zero2 on 1 rank: 8 samples / 16 samples",
    )
    assert "other work: PPO on GPT-2 / GRPO in groups of 4 on GPT-2" in {one.detail for one in found.unjudged}
    assert "deepspeed 25M zero2 on 1 rank" in found.only_after
