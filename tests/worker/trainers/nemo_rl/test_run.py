"""Two ranks with a program beside them that logs as NeMo-RL does: what they write, and an early end."""

import os
from pathlib import Path
from unittest import mock

import pytest

from tests.worker.tiny import Finished, fork_ranks, write_manifest
from tests.worker.trainers.nemo_rl.made import made_manifest, recorded_steps

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(400)]


def run(folder: Path, steps: int) -> Finished:
    path = write_manifest(made_manifest(device="cpu").model_copy(update={"stack": {}}), folder)
    with mock.patch.dict(os.environ, {"STAND_IN_STEPS": str(steps)}):
        return fork_ranks(["tests.worker.trainers.nemo_rl.made", "rank", str(path)], 2, folder, 300)


def test_both_ranks_tell_what_the_log_tells_and_whose_it_is(tmp_path: Path) -> None:
    finished = run(tmp_path, 4)
    assert finished.exit_codes == [0, 0], "\n".join(error[-3000:] for error in finished.errors)
    logged = recorded_steps(tmp_path)
    for rank in (0, 1):
        iterations, phases = finished.events(rank, "iteration"), finished.events(rank, "phase")
        assert [event["iteration"] for event in iterations] == [0, 1, 2, 3]
        assert {event["source"] for event in (*iterations, *phases)} == {"trainer"}
        for name, events in (
            ("total_step_time", iterations),
            ("generation", [event for event in phases if event["phase"] == "generate"]),
        ):
            told = [step.values[f"timing/train/{name}"] for step in logged]
            assert [event["seconds"] for event in events] == told
        memory = [event for event in finished.events(rank, "memory") if event["iteration"] is not None]
        assert [event["phase"] for event in memory] == ["other"] * 4, "of whole iterations"
        assert all(event["peak_resident_bytes"] > 10_000_000 for event in memory), "the program's"
    known = {"samples": 16, "prompt_tokens": 128, "response_tokens": 128, "trained_tokens": 256}
    unknown = dict.fromkeys(("padded_tokens", "optimizer_steps", "trainable_parameters", "total_parameters"))
    assert finished.events(0, "iteration")[0]["counts"] == {**known, **unknown}
    facts = finished.events(0, "environment")[0]["facts"]
    assert "resident_baseline_bytes" not in facts, "peaks are the program's, and this rank's own set is no baseline"
    assert (facts["clock"], facts["experimental"]) == ("the trainer's own log", "never run")
    assert any("swapped into" in text for text in facts["work_differences"])


def test_a_program_that_ends_early_fails_the_run_with_the_steps_it_made(tmp_path: Path) -> None:
    finished = run(tmp_path, 2)
    assert finished.exit_codes == [1, 1]
    evidence = finished.events(0, "failure")[0]["evidence"][0]
    assert "nemo-rl ended with code 0 after 2 of 4 steps; it said last: all is there" in evidence
    assert [event["iteration"] for event in finished.events(0, "iteration")] == [0, 1]
