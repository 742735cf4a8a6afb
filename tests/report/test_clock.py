"""Rows whose seconds are from a trainer's own log are ranked with no other backend, and every report says so."""

from __future__ import annotations

from suite.report.facts.entry import SUITE_CLOCK
from suite.report.facts.model import build
from suite.report.text.markdown import render
from tests.report import entries as made

FACTS = {**made.GPU_FACTS, "clock": "the trainer's own log", "experimental": "never run"}
SUITES = made.repeats(5, rate=20, device="cuda", kind="trainer", backend="trl-grpo")
NEMO_RL = made.repeats(5, rate=26, device="cuda", kind="trainer", backend="nemo-rl", facts=FACTS)
SKYRL = made.repeats(5, rate=30, device="cuda", kind="trainer", backend="skyrl", facts=FACTS)


def test_they_are_in_no_ranking_with_rows_that_the_suite_timed_nor_with_another_trainers() -> None:
    model = build([*SUITES, *NEMO_RL, *SKYRL])
    assert model.ranking.groups == () and model.beside == ()
    clocks = {"trl-grpo": SUITE_CLOCK, "nemo-rl": "nemo-rl's log", "skyrl": "skyrl's log"}
    assert {row.backend: row.setting.clock for row in model.rows} == clocks
    engines = made.repeats(5, rate=20, device="cuda")
    assert build([*engines, *NEMO_RL]).beside == () and build([*engines, *SUITES]).beside != ()


def test_rows_of_one_trainers_log_are_ranked_among_themselves_and_caveats_name_them() -> None:
    recomputed = NEMO_RL[0].manifest.layout.model_copy(update={"recompute": "full"})
    slower = made.repeats(5, rate=20, device="cuda", kind="trainer", backend="nemo-rl", facts=FACTS, layout=recomputed)
    model = build([*SUITES, *NEMO_RL, *slower])
    assert len(model.ranking.groups) == 1
    assert "timed by `nemo-rl's log` and not by the suite" in render(model, ())
    assert any("(nemo-rl): seconds and counts are those of the trainer's own log" in line for line in model.caveats)
    assert any(line.startswith("nemo-rl is experimental (never run)") for line in model.caveats)
    assert not any("trl-grpo" in line for line in model.caveats)
