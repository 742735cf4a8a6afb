"""A rate without the scoring passes stands beside the whole one, and only for work that has it."""

from __future__ import annotations

from suite.report.facts.model import build
from suite.report.text.markdown import render
from suite.report.text.sections.without_scoring import SECTION
from tests.report import entries as made

CRITIC = {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}


def test_both_ways_follow_from_the_phases() -> None:
    chat = [made.entry(work=made.workload("chat", critic=CRITIC), repeat=repeat) for repeat in (1, 2, 3)]
    model = build([*chat, made.entry(backend="megatron")])
    text, table = SECTION.markdown(model, {})
    (line,) = table.splitlines()[2:]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    (row,) = [row for row in model.rows if row.workload == "chat"]
    assert cells[0] == row.name
    kept = sum(phase.seconds for phase in row.phases if phase.name in ("generate", "train"))
    assert row.samples_per_iteration is not None and row.iteration_seconds is not None
    assert float(cells[-2].replace(",", "")) == float(f"{row.samples_per_iteration / kept:.3g}")
    assert cells[-1] == f"{100 * (1 - kept / row.iteration_seconds):.0f}"
    assert "leave the scoring passes out" in text
    assert f"{text}\n\n{table}" in render(model, {})


def test_a_report_without_such_work_says_nothing_of_it() -> None:
    model = build([made.entry(), made.entry(backend="megatron")])
    assert SECTION.markdown(model, {}) == []
    assert "DeepSpeed-Chat" not in render(model, {})
