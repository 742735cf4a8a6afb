from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from suite.bundle.record import Energy
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.text.markdown import render
from suite.spec.layout import Layout
from tests.report import entries as made

PLOTS = {name: f"report-assets/{name}.svg" for name in ("throughput", "scaling", "phases", "memory")}
TRLX: dict[str, Any] = {
    "backend": "trlx-deepspeed",
    "kind": "trainer",
    "facts": made.TRAINER_FACTS,
    "details": made.TRAINER_DETAILS,
}
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
EVIL = "x|y](https://evil.example)<script>alert(1)</script>`~~*_[a](b)\n# h\u202e"


class MarkdownFile(SingleFileSnapshotExtension):
    """A snapshot is a Markdown file of its own, so that a reviewer reads it as a reader will."""

    _write_mode = WriteMode.TEXT
    file_extension = "md"


@pytest.fixture
def saved(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(MarkdownFile)


def mixed() -> list[Entry]:
    """Engines and a trainer, two workloads, two tracks, weak and strong."""
    return [
        *made.repeats(5),
        *made.repeats(5, backend="megatron", rate=25),
        *made.repeats(5, backend="megatron", rate=24, work=made.workload("long", prompt_tokens=32)),
        *made.repeats(5, backend="megatron", rate=26, track="tuned"),
        *made.repeats(3, rate=16, **TRLX),
        *made.repeats(2, backend="trlx-nemo", rate=18, kind="trainer"),
        *made.repeats(3, rate=21, work=made.workload(scaling="strong")),
        *made.repeats(3, rate=45, ranks=2, work=made.workload(scaling="strong")),
    ]


def troubled() -> list[Entry]:
    """Runs that were unsteady, failed in part, or in all."""
    return [
        made.entry(repeat=1),
        made.entry(repeat=2, verdict="drifting"),
        made.failed(repeat=3, evidence=("RuntimeError: [enforce fail at alloc_cpu.cpp:118] out of memory", "and more")),
        *(made.failed("hang", backend="megatron", repeat=repeat) for repeat in (1, 2)),
        made.failed("interrupted", backend="megatron", size="8M", evidence=()),
    ]


def hostile() -> list[Entry]:
    """Strings that try to break out of every ranked that shows them."""
    facts: dict[str, Any] = {**made.CPU_FACTS, "host": EVIL, "kernel": EVIL, "notes": [EVIL], "packages": {EVIL: EVIL}}
    facts["cpu"] = {"model": EVIL, "cores": 2, "threads": 2}
    facts["work_differences"] = [EVIL, 7]
    evil = {"backend": EVIL, "size": EVIL[:60], "work": made.workload(EVIL[:60]), "facts": facts}
    evil["details"] = {EVIL: 0.1}
    entries = [*made.repeats(1, **evil, notes=[EVIL]), *made.repeats(1, **evil, rate=30, ranks=2, verdict="drifting")]
    failed = made.failed("config", evidence=(EVIL,), **{key: evil[key] for key in ("backend", "size")})
    return [Entry(one.manifest, one.record, f"runs/`{EVIL}`/'$(id)'") for one in [*entries, failed]]


def networked() -> list[Entry]:
    """Two nodes of eight GPUs, one of them reached by TCP in one run; a CPU beside them."""
    rates = {"within_node": 380e9, "across_nodes": 45e9, "all_ranks": 300e9}
    adapter = {"name": EVIL, "port": "1", "state": "ACTIVE", "bits_per_second": 400e9, "link_layer": EVIL}
    gpu = {**made.GPU_FACTS, "topology": {"adapters": [adapter] * 8}, "variables": {"NCCL_DEBUG": EVIL}}
    good, slow = ({**gpu, "network": made.network({**rates, "across_nodes": rate})} for rate in (45e9, 2.5e9))
    cpu = {**made.CPU_FACTS, "network": made.network({"within_node": 1.5e9})}
    return [
        *made.repeats(2, size="1.3B", ranks=16, device="cuda", facts=good),
        *made.repeats(1, size="1.3B", ranks=16, device="cuda", facts=slow, backend="megatron"),
        *made.repeats(1, ranks=2, facts=cpu),
    ]


def families() -> list[Entry]:
    """PPO on GPT-2 beside GRPO on Llama of uneven lengths: padded, packed, by vLLM, split."""
    asked: dict[str, Any] = {"size": "1M-llama", "ranks": 2, "work": made.grpo()}
    stacks: dict[str, dict[str, Any]] = {"deepspeed": {"zero_stage": 2}, "megatron": {"distributed_optimizer": True}}
    shares = {name: share for name, share in made.SHARES.items() if name != "reference"}
    own = {"idle_slot_share": 0.46, "idle_slot_seconds": 0.31}
    engine = {"shares": made.ENGINE_SHARES, "rollout": {"idle_slot_share": 0.46, **made.MISMATCH}}

    apart = {"sync": 0.03, "generate": 0.15, "score": 0.2, "reward": 0.005, "train": 0.6, "other": 0.015}

    def layout(backend: str, **more: Any) -> Layout:
        return Layout(devices_per_node=2, data=2, **stacks[backend], **more)

    asleep = layout("deepspeed", generation="vllm", engine_sleep=True)
    packed = layout("deepspeed", generation="vllm", packing=True)
    return [
        *made.matrix(sizes=("1M",), ranks=(1, 2), runs=5),
        *made.repeats(5, rate=14.0, shares=shares, rollout=own, layout=layout("deepspeed"), **asked),
        *made.repeats(5, rate=17.0, shares=shares, rollout=own, layout=layout("megatron"), backend="megatron", **asked),
        *made.repeats(5, rate=19.0, layout=asleep, **engine, **asked),
        *made.repeats(5, rate=21.0, layout=packed, **engine, **asked),
        *made.repeats(
            5,
            rate=26.0,
            layout=Layout(devices_per_node=2, data=1, placement="split", generation_ranks=1),
            **{**engine, "shares": apart, "staleness": 1, "overlap": made.overlapped(32 / 26, ranks=2)},
            **asked,
        ),
    ]


def trainers() -> list[Entry]:
    """GRPO by six trainers, one of them asynchronous, beside two engines, and RLOO by one more."""
    work = made.workload("cpu-grpo", algorithm="grpo", group=4)
    asked: dict[str, Any] = {"ranks": 2, "work": work}
    facts = {**made.CPU_FACTS, "lacking_phases": {"score": "log-probs are those of generation, no pass is made"}}
    trl = {
        **facts,
        "work_differences": ["prompts are padded to the left", "the optimizer is torch's AdamW, with foreach"],
    }
    led = {
        **made.CPU_FACTS,
        "work_differences": [
            "rewards are computed by the agent while it generates",
            "prompts are padded to the left",
            f"a sentence | of {EVIL}",
        ],
    }
    no_score = {"generate": 0.5, "reward": 0.005, "train": 0.45, "other": 0.045}
    whole = {"sync": 0.05, "generate": 0.4, "score": 0.1, "reward": 0.01, "train": 0.4, "other": 0.04}
    period = {"sync": 0.06, "generate": 0.1, "score": 0.15, "train": 0.65, "other": 0.04}

    def layout(**more: Any) -> Layout:
        return Layout(devices_per_node=2, **{"data": 2, **more})

    apart = {"data": 1, "placement": "split", "generation_ranks": 1, "generation": "vllm"}
    trainer: dict[str, Any] = {"kind": "trainer", **asked}
    engine_shares = {name: share for name, share in made.SHARES.items() if name != "reference"}
    return [
        *made.repeats(5, rate=14.0, shares=engine_shares, **asked),
        *made.repeats(5, rate=17.0, shares=engine_shares, backend="megatron", **asked),
        *made.repeats(5, rate=11.0, shares=no_score, backend="trl-grpo", facts=trl, layout=layout(), **trainer),
        *made.repeats(
            5, rate=10.0, shares=no_score, backend="trl-grpo", facts=trl, layout=layout(zero_stage=2), **trainer
        ),
        *made.repeats(
            5,
            rate=13.0,
            shares={"sync": 0.04, **no_score},
            backend="trl-grpo",
            facts=trl,
            layout=layout(generation="vllm"),
            **trainer,
        ),
        *made.repeats(
            5, rate=6.0, shares=whole, backend="verl", facts=led, layout=layout(generation="vllm"), **trainer
        ),
        *made.repeats(
            5,
            rate=5.0,
            shares=whole,
            backend="openrlhf",
            facts=led,
            layout=layout(zero_stage=2, **apart),
            counts={"optimizer_steps": 2},
            **trainer,
        ),
        *made.repeats(
            5,
            rate=7.0,
            shares=period,
            backend="openrlhf",
            facts=led,
            layout=layout(zero_stage=2, staleness=1, **apart),
            staleness=1,
            overlap=made.steady(work.rollouts / 7.0, 2),
            **trainer,
        ),
        *made.repeats(
            3,
            rate=9.0,
            shares=no_score,
            backend="trl-rloo",
            kind="trainer",
            facts=trl,
            ranks=2,
            work=made.workload("cpu-rloo", algorithm="rloo", group=4),
        ),
        *made.repeats(
            3, rate=12.0, shares=engine_shares, ranks=2, work=made.workload("cpu-rloo", algorithm="rloo", group=4)
        ),
    ]


REPORTS = {
    "trainers": trainers,
    "families": families,
    "matrix": made.matrix,
    "single": lambda: [made.entry()],
    "mixed": mixed,
    "troubled": troubled,
    "hostile": hostile,
}
REPORTS["gpu"] = lambda: made.matrix(sizes=("1.3B", "66B"), ranks=(8, 64), device="cuda", runs=1)
REPORTS["network"] = networked
REPORTS["all-failed"] = lambda: [
    made.failed(size=size, backend=one) for size in ("1M", "8M") for one in ("deepspeed", "megatron")
]
REPORTS["nothing"] = list


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_reads_as_saved(name: str, saved: SnapshotAssertion) -> None:
    assert render(build(REPORTS[name]()), PLOTS) == saved


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_is_a_table_and_nothing_else_is_markup(name: str) -> None:
    text = render(build(REPORTS[name]()), PLOTS)
    tokens = PARSER.parse(text)
    rules = [line for line in text.splitlines() if re.fullmatch(r"\|( -+:? \|)+", line)]
    assert [token.type for token in tokens].count("table_open") == len(rules)
    assert not [token for token in tokens if token.type in ("html_block", "blockquote_open", "ordered_list_open")]
    children = [child for token in tokens for child in token.children or ()]
    assert not {child.type for child in children} & {"html_inline", "link_open", "em_open", "strong_open", "s_open"}
    assert [child.attrs["src"] for child in children if child.type == "image"] == re.findall(
        r"(?m)^!\[.*\]\((.*)\)$", text
    )


@pytest.mark.parametrize("name", REPORTS)
def test_every_row_has_as_many_cells_as_its_header(name: str) -> None:
    width = 0
    for line in render(build(REPORTS[name]()), PLOTS).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (cells and width) or cells == width, line
        width = cells


def test_commands_quote_what_a_shell_would_read() -> None:
    text = render(build(hostile()), {})
    commands = [line for line in text.splitlines() if line.startswith("suite rerun ")]
    assert len(commands) == 3
    assert all(re.fullmatch(r"suite rerun '.*/manifest\.json'", line) for line in commands)


def test_every_row_has_its_command_and_the_whole_hash_of_its_manifest() -> None:
    model = build(made.matrix(runs=1))
    text = render(model, {})
    for row in model.rows:
        assert f"manifest {row.manifest_hash}\nsuite rerun {row.path}/manifest.json\n" in text


def test_energy_is_told_where_it_was_sampled_and_says_when_it_is_not_valid() -> None:
    def with_energy(entry: Entry, valid: bool) -> Entry:
        energy = Energy(
            joules=4800.0, joules_per_sample=100.0, valid=valid, reasons=() if valid else ("5 s are too short",)
        )
        return Entry(entry.manifest, entry.record.model_copy(update={"energy": energy}), entry.path)

    text = render(build([with_energy(made.entry(device="cuda"), True)]), {})
    assert re.search(r"\| J/sample \|\n.*\n.*\| +100 \|\n", text)
    assert "100 (a) |" in render(build([with_energy(made.entry(device="cuda"), False)]), {})
    assert "## Energy" not in render(build([made.entry()]), {})


def test_predicted_stands_beside_measured_only_where_it_is_known() -> None:
    entry = made.entry(device="cuda")
    foretold = Entry(
        entry.manifest, entry.record.model_copy(update={"predicted": {"samples_per_second": 21.5}}), entry.path
    )
    assert re.search(r"\| predicted \|", render(build([foretold]), {}))
    assert "predicted" not in render(build([entry]), {})


def test_runs_on_a_cpu_are_predicted_by_the_report_which_says_so() -> None:
    text = render(build([made.entry()]), {})
    assert "## Predicted and measured" in text and "computed while this report is made" in text
    assert re.search(r"Off by [\d.]+ % \(median\) and at most [\d.]+ %; in their band: [01] of 1 row", text)


def test_ranks_of_one_cpu_are_said_to_share_it() -> None:
    shared = "share its cores and memory bandwidth"
    assert shared in render(build(made.matrix(sizes=("1M",), runs=1)), {})
    assert shared not in render(build(made.matrix(sizes=("1M",), runs=1, device="cuda")), {})


def test_trainers_and_engines_have_rankings_of_their_own() -> None:
    text = render(build(mixed()), {})
    headings = re.findall(r"(?m)^### (\w+ backends)", text)
    assert headings == ["Engine backends", "Trainer backends"]


def test_what_no_device_and_no_correct_run_can_do_is_marked() -> None:
    entry = made.entry(peak_factor=0.5, device="cuda")
    compute = entry.record.compute.model_copy(update={"mfu": 1.2})
    fast = replace(entry, record=entry.record.model_copy(update={"compute": compute}))
    doubtful = render(build([fast]), {})
    assert re.search(r"\| +\d+ \(!\) \|", doubtful) and "- (!) A peak below the floor" in doubtful
    assert "Above 100 %, which no device can reach" in doubtful
    usual = render(build([made.entry(device="cuda")]), {})
    assert "below the floor" not in usual and "Above 100 %" not in usual


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
    assert text.count("- and 4900 more\n") == 3 and "4940, left out here" in text
