"""What is read of other tools' logs, and that nothing else is."""

import json
from pathlib import Path

import pytest

from suite.bundle.files import DamagedBundle
from suite.bundle.imported import steps as steps_module
from suite.bundle.imported.derive import derive
from suite.bundle.imported.record import MARK, Import, ImportedRecord, Told
from suite.bundle.imported.steps import read_steps
from suite.bundle.imported.store import log_facts
from suite.bundle.imported.timers import NAMES, UNCOUNTED, WHOLE, Tool
from suite.worker.trainers.nemo_rl.logged import TIMERS
from tests.bundle.imported.made import PRINTED, TOLD, nemo_console, nemo_tracker, verl_console, verl_tracker


def record(text: str, tool: Tool = "verl", told: Told = TOLD, warmup: int = 0) -> ImportedRecord:
    data = text.encode()
    asked = Import(suite_version="0", tool=tool, warmup=warmup, told=told, log=log_facts(data))
    return derive("imported-x", asked, data)


WORK = ("samples", "prompt_tokens", "response_tokens", "total_tokens")
LOGS: list[tuple[Tool, str]] = [
    ("verl", verl_console()),
    ("verl", verl_console(prefix="\x1b[36m(TaskRunner pid=4242)\x1b[0m ")),
    ("verl", verl_tracker()),
    ("nemo-rl", nemo_tracker()),
]


@pytest.mark.parametrize(("tool", "text"), LOGS, ids=["console", "through Ray", "tracker", "NeMo-RL's tracker"])
def test_rates_are_all_work_over_all_time(tool: Tool, text: str) -> None:
    found = record(text, tool)
    assert found.mark == MARK == "imported, not measured here"
    assert found.seconds == (10.0, 10.0, 10.0) and found.step_seconds == 10.0
    assert found.counts.samples == 16 and found.counts.sources["samples"] == "computed from the log"
    assert found.counts.total_tokens == 6400 and found.counts.sources["total_tokens"] == "the log"
    assert found.throughput.samples_per_second == pytest.approx(1.6)
    assert found.throughput.tokens_per_second == pytest.approx(640)
    assert found.throughput.tokens_per_second_per_device == pytest.approx(80)


def test_phases_are_the_tools_own_timers_and_what_lies_within_one_is_not_counted_twice() -> None:
    phases = record(verl_console()).phases
    assert {name: phase.seconds for name, phase in phases.items()} == pytest.approx(
        {"generate": 4.0, "score": 1.0, "reference": 1.0, "reward": 0.6, "train": 3.0, "other": 0.4}
    )
    assert sum(phase.share or 0 for phase in phases.values()) == pytest.approx(1)


def test_a_console_of_nemo_rl_tells_phases_and_the_importer_the_samples() -> None:
    told = TOLD.model_copy(update={"samples": 16, "prompt_tokens": 100.0})
    found = record(nemo_console(), "nemo-rl", told)
    assert found.phases["generate"].seconds == 4 and found.phases["sync"].seconds == 0.5
    assert found.throughput.tokens_per_second == pytest.approx(640)
    assert set(found.counts.sources.values()) == {"told by the importer"}
    alone = record(nemo_console(), "nemo-rl")
    assert alone.throughput.samples_per_second is None and alone.counts.samples is None


def test_skyrls_console_tells_seconds_and_lengths_of_responses_and_the_importer_the_samples() -> None:
    text = PRINTED["skyrl"]
    found = record(text, "skyrl", TOLD.model_copy(update={"samples": 16, "prompt_tokens": 8.0}))
    assert found.seconds == (0.0935, 0.0893, 0.0765, 0.0752) and found.steps.first == 1
    assert found.counts.response_tokens == 128 and found.counts.total_tokens == 256
    assert found.phases["generate"].seconds == pytest.approx(0.03535) and "reference" not in found.phases
    assert found.notes == ("1 step of the log tells no time and is left out",), "an evaluation before the first"
    alone = record(text, "skyrl")
    assert alone.counts.model_dump(exclude={"sources"}) == dict.fromkeys(WORK) and alone.phases == found.phases
    split = text.replace(" 'timing/generate'", "} Step 1: \n{'timing/generate'", 1)
    assert record(split, "skyrl").seconds == found.seconds, "metrics and timers of a step, logged apart"


def test_areals_console_tells_all_but_the_seconds_of_its_first_step() -> None:
    found = record(PRINTED["areal"], "areal")
    assert found.seconds == (0.135, 0.141, 0.125) and (found.steps.first, found.steps.last) == (2, 4)
    assert found.counts.model_dump(exclude={"sources"}) == dict(zip(WORK, (16, 128, 128, 256), strict=True))
    assert found.counts.sources["samples"] == "the log"
    assert {*found.phases} == {"generate", "score", "reference", "reward", "train", "sync", "other"}
    assert not any("nothing is known" in note for note in found.notes)


def test_steps_of_a_second_epoch_go_on() -> None:
    assert record(nemo_console(steps=2, epochs=2), "nemo-rl").steps.found == 4


def test_the_warm_up_is_left_out() -> None:
    text = verl_console(1, **{"timing_s/step": 99.0}) + verl_console(3).replace("step:1 ", "step:1x ")
    found = record(text, warmup=1)
    assert found.seconds == (99.0, 10.0, 10.0)
    assert found.step_seconds == 10 and found.steps.first == 2 and found.steps.warmup == 1
    with pytest.raises(DamagedBundle, match="3 steps, and 3 are left out"):
        record(verl_console(), warmup=3)


def test_memory_is_the_largest_that_was_logged_and_numbers_of_numpy_are_numbers() -> None:
    found = record(verl_console(**{"timing_s/step": "np.float64(12.5)"}))
    assert found.step_seconds == 12.5
    assert found.memory.peak_allocated_bytes == 30.5 * 2**30 and found.memory.peak_reserved_bytes == 40 * 2**30


def test_what_is_not_known_or_no_work_is_told() -> None:
    changed = {"timing_s/testing": 2.0, "timing_s/brand_new": 0.1}
    notes = " ".join(record(verl_console(**changed)).notes)
    assert "hold 6 s of timing_s/testing, which is no part of the work" in notes
    assert "in no phase: timing_s/brand_new" in notes
    assert "1 step of the log tells no time" in notes


def test_timers_that_overlap_have_no_shares() -> None:
    found = record(verl_console(**{"timing_s/gen": 9.0}))
    assert all(phase.share is None for phase in found.phases.values()) and "other" not in found.phases
    assert any("they overlap" in note for note in found.notes)


def test_what_was_told_must_not_contradict_the_log() -> None:
    with pytest.raises(DamagedBundle, match="--samples 32 is not"):
        record(nemo_tracker(), "nemo-rl", TOLD.model_copy(update={"samples": 32}))
    with pytest.raises(DamagedBundle, match="--prompt-tokens 90 is not"):
        record(verl_console(), told=TOLD.model_copy(update={"prompt_tokens": 90.0}))


def test_samples_that_make_no_whole_number_are_not_guessed() -> None:
    found = record(verl_console(**{"perf/total_num_tokens": 6600}))
    assert found.counts.samples is None and found.throughput.tokens_per_second == pytest.approx(660)


REFUSED: list[tuple[str, Tool, str]] = [
    ("", "verl", "no step of verl"),
    ("hello\n", "nemo-rl", "no step of nemo-rl: nowhere does it tell timing/train/total_step_time"),
    (verl_console(), "nemo-rl", "no step of nemo-rl"),
    (verl_console() + verl_console(), "verl", "two runs in one log"),
    (nemo_console() + nemo_console().replace("Epoch", "Epic"), "nemo-rl", "two runs in one log"),
    ("a\0b", "verl", "zero bytes"),
    (verl_console(**{"timing_s/step": 0}), "verl", "took 0 s"),
    (verl_console(**{"timing_s/gen": -1}), "verl", "took -1 s in timing_s/gen"),
    (verl_console(**{"timing_s/step": 1e300}), "verl", "took 1e\\+300 s"),
    ('{"step": 1}\n', "verl", "line 1 of the log is no step"),
    ('{"a": 1}', "nemo-rl", "is no object of numbers by step"),
    ('{"a": {"x": 1}}', "nemo-rl", "which is no number"),
    ('{"a": ' * 40, "nemo-rl", "not JSON"),
    (PRINTED["skyrl"] * 2, "skyrl", "tells step 1 behind step 4: two runs in one log"),
    (PRINTED["areal"] * 2, "areal", "two runs in one log"),
    (PRINTED["areal"].replace("06:00:00.276", "05:00:00.276"), "areal", "step 2 of the log took -3599.86 s in"),
    (PRINTED["areal"].replace("20261124", "20269924"), "areal", "nowhere does it tell the time from"),
    ('{"timeperf/rollout": {"0": 1.0}}', "areal", "no step of areal"),
    ("x" * (1 << 20) + "y\n", "verl", "line 1 of the log is longer"),
    (f"step:1 - timing_s/step:1 - {'timing_s/a:1 - ' * 3}timing_s/a:2\n", "verl", "with another value again"),
]


@pytest.mark.parametrize(("text", "tool", "problem"), REFUSED, ids=[each[2][:24] for each in REFUSED])
def test_a_wrong_log_is_refused_in_one_line(text: str, tool: Tool, problem: str) -> None:
    with pytest.raises(DamagedBundle, match=problem) as refused:
        record(text, tool)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "line",
    [
        "step:1 - " + "timing_s/a" * 90_000,
        "step:" * 200_000,
        "step:1" + " - " * 300_000,
        "\N{BULLET}: " * 200_000,
        "': '" * 200_000,
        "20261124-06:00:00.141 StatsLogger INFO: Train step 1/" * 15_000,
    ],
    ids=["a long name", "many steps", "many parts", "many bullets", "many names", "many headings"],
)
def test_a_hostile_line_ends(line: str) -> None:
    """With a pattern that goes back over what it read, it would not in hours."""
    for tool in NAMES:
        with pytest.raises(DamagedBundle):
            read_steps(f"=== Step 1/1 ===\nStep 1:\n{line}\nTrain step {line}\n".encode(), tool)


def test_what_a_log_may_take_of_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "MOST_VALUES", 100)
    pairs = " - ".join(f"timing_s/{index}:1" for index in range(60))
    text = "".join(f"step:{number} - timing_s/step:1 - {pairs}\n" for number in (1, 2)).encode()
    with pytest.raises(DamagedBundle, match="or 100 numbers"):
        read_steps(text, "verl")


def test_nemo_rls_timers_are_those_by_which_the_worker_reads_its_log() -> None:
    """The driver does not import the worker, so that the names stand twice."""
    names = NAMES["nemo-rl"]
    for name, phase in TIMERS.items():
        assert names.phase_of(name) == {None: UNCOUNTED, "whole": WHOLE, "within": UNCOUNTED}.get(phase, phase)


REAL = Path(__file__).resolve().parents[3] / "docs/results/trainers-grpo/runs/verl-1M-llama-n2-e7a096eb-r1"


def test_the_console_of_a_real_run_of_verl_gives_what_the_suite_counted_itself() -> None:
    """verl 0.9.1 printed these lines while the suite timed it: its counts are the record's, its timers the events'."""
    own = json.loads((REAL / "record.json").read_text())
    warmup = own["steady_state"]["warmup"]
    found = record((REAL / "logs" / "rank-0.log").read_text(), warmup=warmup)
    counted = {name: own["counts"][name] for name in ("samples", "prompt_tokens", "response_tokens")}
    assert {name: getattr(found.counts, name) for name in counted} == counted
    events = map(json.loads, (REAL / "events" / "rank-0.jsonl").read_text().splitlines())
    timers = [event["own_timers"]["step"] for event in events if event["kind"] == "iteration"]
    assert found.seconds == pytest.approx(timers, rel=0.01)
    rate = own["throughput"]["tokens_per_second"]["value"]
    assert found.throughput.tokens_per_second == pytest.approx(rate, rel=0.05)
    assert "sync" in found.phases and found.notes == ()
