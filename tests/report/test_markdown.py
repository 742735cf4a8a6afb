"""The Markdown: each section as it was last read by somebody, and every report as a parser of Markdown reads it."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec import structs
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from suite.bundle.record import Energy
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.text import sections
from suite.report.text.markdown import of_part, render
from suite.report.text.section import parts_of
from suite.spec.layout import Layout
from tests.report import entries as made
from tests.report.reports import (
    EVIL,
    NO_REFERENCE,
    NO_SCORE,
    PERIOD,
    REPORTS,
    TRL_FACTS,
    TRLX,
    VLLM,
    hostile,
    overlapped,
    steady,
)

PLOTS = {name: f"report-assets/{name}.svg" for name in ("throughput", "scaling", "phases", "memory")}
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LLAMA: dict[str, Any] = {"size": "1M-llama", "ranks": 2, "work": made.grpo()}


class MarkdownFile(SingleFileSnapshotExtension):
    """A snapshot is a Markdown file of its own, so that a reviewer reads it as a reader will."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"


def split(**more: Any) -> Layout:
    return Layout(devices_per_node=2, data=1, placement="split", generation_ranks=1, generation="vllm", **more)


def ahead() -> list[Entry]:
    told: dict[str, Any] = {"shares": PERIOD, "overlap": steady(2.0, 2), "layout": split(staleness=1)}
    return made.repeats(2, backend="openrlhf", kind="trainer", rate=7.0, ranks=2, staleness=1, **told)


def two_backends() -> list[Entry]:
    """Ranked, one of them unsteady and mostly slower in one phase, beside a row of other work."""
    slower = {**made.SHARES, "generate": 0.5, "train": 0.32}
    long = made.workload("long", prompt_tokens=32)
    return [
        *made.repeats(2),
        made.entry(repeat=3, verdict="drifting"),
        *made.repeats(3, backend="megatron", rate=15, shares=slower),
        *made.repeats(3, work=long),
    ]


def trainers_beside_an_engine() -> list[Entry]:
    trl: dict[str, Any] = {"backend": "trl-grpo", "kind": "trainer", "facts": TRL_FACTS, "shares": NO_SCORE}
    return [*made.repeats(2, ranks=2, shares=NO_REFERENCE), *made.repeats(2, rate=11, ranks=2, **trl), *ahead()]


def failing() -> list[Entry]:
    return [
        *(made.failed(repeat=repeat, evidence=("RuntimeError: out of memory", "and more")) for repeat in (1, 2)),
        made.failed("interrupted", size="8M", evidence=()),
        made.failed("config", backend="megatron", evidence=(EVIL,)),
    ]


def generated_elsewhere() -> list[Entry]:
    """By an engine beside the training, which sleeps meanwhile, and by ranks of their own."""
    asleep = Layout(devices_per_node=2, data=2, generation="vllm", engine_sleep=True)
    overlap = overlapped(32 / 26, ranks=2)
    return [
        *made.repeats(2, layout=asleep, **VLLM, **LLAMA),
        *made.repeats(2, rate=26, layout=split(), staleness=1, overlap=overlap, **VLLM, **LLAMA),
    ]


def with_energy(valid: bool) -> Entry:
    reasons = () if valid else ("5 s are too short",)
    energy = Energy(joules=4800.0, joules_per_sample=100.0, valid=valid, reasons=reasons)
    return made.recorded(made.entry(device="cuda", iterations=6 + valid), energy=energy)


def on_a_gpu(**asked: Any) -> Entry:
    return made.entry(device="cuda", size="1.3B", ranks=8, **asked)


STRONG = made.workload(scaling="strong")
FORETOLD = {
    "samples_per_second": 21.5,
    "low": 18.0,
    "high": 25.0,
    "phases": {"generate": 1.1, "score": 0.1, "reference": 0.1, "train": 0.9, "other": 0.02},
}

#: The smallest runs that show all that a section tells; what was imported is in tests/cli/test_import.py.
VIEWS: dict[str, Callable[[], list[Entry]]] = {
    "ranking": two_backends,
    "ranking, of trainers": trainers_beside_an_engine,
    "caveats": lambda: [made.entry(backend="nemo-rl", kind="trainer", **LOG)],
    "throughput": lambda: [made.entry(), on_a_gpu(), made.failed(size="8M")],
    "predicted and measured": lambda: [made.recorded(made.entry(), predicted=FORETOLD)],
    "phases": lambda: [made.entry(), *made.repeats(2, **TRLX), *ahead()],
    "phases, of a critic": lambda: [made.entry(work=made.workload("chat", critic=CRITIC))],
    "generation and weight sync": generated_elsewhere,
    "asynchronous trainers": ahead,
    "lengths and padding": lambda: made.repeats(2, shares=NO_REFERENCE, rollout=IDLE, **LLAMA),
    "memory by phase": lambda: made.repeats(2),
    "digests": lambda: [replace(made.entry(), digest="ab" * 32)],
    "stacks and records": lambda: [made.entry()],
    "memory": lambda: [*made.repeats(2), on_a_gpu(peak_factor=0.5)],
    "energy": lambda: [with_energy(True), with_energy(False)],
    "scaling": lambda: [made.entry(rate=20 * n**0.8, ranks=n, work=work) for work in (None, STRONG) for n in (1, 2)],
    "network": REPORTS["network"],
    "failures": failing,
    "measured on": lambda: [made.entry(), on_a_gpu()],
    "work": lambda: [made.entry(), made.entry(**LLAMA), made.entry(**TRLX)],
    "conventions": lambda: [on_a_gpu()],
    "reproduce": lambda: [made.entry(), hostile()[0]],
}
LOG: dict[str, Any] = {"facts": {**made.CPU_FACTS, "clock": "the trainer's own log", "experimental": "never run"}}
CRITIC = {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}
IDLE = {"idle_slot_share": 0.46, "idle_slot_seconds": 0.31}


SECTIONS = {section.heading.lower(): section for section in sections.SECTIONS}


def test_every_section_has_a_view_but_that_of_imports() -> None:
    assert {name.partition(",")[0] for name in VIEWS} == {*SECTIONS} - {"imported, not measured here"}


@pytest.mark.parametrize("name", VIEWS)
def test_a_section_reads_as_saved(name: str, snapshot: SnapshotAssertion) -> None:
    parts = parts_of(build(VIEWS[name]()), [SECTIONS[name.partition(",")[0]]])
    text = "\n\n".join(block for part in parts for block in of_part(part, PLOTS)) + "\n"
    assert text == snapshot.use_extension(MarkdownFile)


@pytest.mark.parametrize("name", ["mixed", "nothing"])
def test_the_head_of_a_report_reads_as_saved(name: str, snapshot: SnapshotAssertion) -> None:
    text = render(build(REPORTS[name]()), PLOTS)
    assert text.partition("\n## ")[0] == snapshot.use_extension(MarkdownFile)


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_is_a_table_of_equal_rows_and_nothing_else_is_markup(name: str) -> None:
    text = render(build(REPORTS[name]()), PLOTS)
    tokens = PARSER.parse(text)
    rules = [line for line in text.splitlines() if re.fullmatch(r"\|( -+:? \|)+", line)]
    assert [token.type for token in tokens].count("table_open") == len(rules)
    html = {line for token in tokens if token.type == "html_block" for line in token.content.splitlines()}
    assert html <= {'<details markdown="1"><summary>Show</summary>', "</details>"}
    assert not [token for token in tokens if token.type in ("blockquote_open", "ordered_list_open")]
    children = [child for token in tokens for child in token.children or ()]
    assert not {child.type for child in children} & {"html_inline", "em_open", "strong_open", "s_open"}
    links = {child.attrs["href"][0] for child in children if child.type == "link_open"}
    assert links <= {"#"}, "none leads out of the report"
    shown = [child.attrs["src"] for child in children if child.type == "image"]
    assert shown == re.findall(r"(?m)^!\[.*\]\((.*)\)$", text)
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (cells and width) or cells == width, line
        width = cells


def test_a_utilisation_that_no_device_can_reach_is_marked() -> None:
    entry = made.entry(device="cuda")
    fast = made.recorded(entry, compute=structs.replace(entry.record.compute, mfu=1.2))
    assert "Above 100 %, which no device can reach" in render(build([fast]), {})
    assert "Above 100 %" not in render(build([entry]), {})


def test_a_worker_that_notes_and_lists_without_end_does_not_fill_the_report() -> None:
    facts = {
        **made.CPU_FACTS,
        "notes": [f"note {index}" for index in range(5000)],
        "work_differences": [f"difference {index}" for index in range(5000)],
        "packages": {f"package-{index}": "1" for index in range(5000)},
    }
    model = build([made.entry(facts=facts)], caveats=[f"caveat {index}" for index in range(5000)])
    text = render(model, {})
    assert len(text.splitlines()) < 600
    assert text.count("- and 4900 more\n") == 3 and "4911, left out here" in text
