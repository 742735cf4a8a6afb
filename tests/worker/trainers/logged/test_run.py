"""Two ranks with a program beside them that logs as AReaL does: what they write, what is left, and an early end."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from suite.worker.trainers.logged.reading import read_all
from tests.worker.tiny import Finished, fork_ranks, write_manifest
from tests.worker.trainers.logged.made import LOGS, made_manifest

pytestmark = pytest.mark.ranks


def run(folder: Path, steps: int) -> Finished:
    manifest = made_manifest("areal", device="cpu")
    manifest = manifest.model_copy(update={"stack": {}})
    path = write_manifest(manifest, folder)
    temporary = folder / "tmp"
    temporary.mkdir()
    with mock.patch.dict(os.environ, {"STAND_IN_STEPS": str(steps), "TMPDIR": str(temporary)}):
        return fork_ranks(["tests.worker.trainers.logged.stand_in", str(path)], 2, folder, 120)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(tmp_path_factory.mktemp("told"), 4)


class TestRun:
    def test_both_ranks_end_well_with_all_iterations(self, finished: Finished) -> None:
        assert finished.exit_codes == [0, 0], "\n".join(error[-3000:] for error in finished.errors)
        for rank in (0, 1):
            assert [event["iteration"] for event in finished.events(rank, "iteration")] == [0, 1, 2, 3]

    def test_phases_are_the_logs_on_every_rank_and_say_whose_they_are(self, finished: Finished) -> None:
        logged = read_all(str(LOGS["areal"]), "areal", ("1.0.4",))
        for rank in (0, 1):
            generated = [event for event in finished.events(rank, "phase") if event["phase"] == "generate"]
            assert [event["seconds"] for event in generated] == [step.values["timeperf/rollout"] for step in logged]
            assert {event["source"] for event in finished.events(rank, "phase")} == {"trainer"}

    def test_an_iteration_is_from_one_commit_to_the_next(self, finished: Finished) -> None:
        for event in finished.events(1, "iteration"):
            assert event["source"] == "trainer" and 0.3 <= event["seconds"] < 5

    def test_counts_that_the_log_does_not_tell_are_null(self, finished: Finished) -> None:
        assert finished.events(0, "iteration")[0]["counts"] == {
            "samples": 16,
            "prompt_tokens": 128,
            "response_tokens": 128,
            "padded_tokens": None,
            "trained_tokens": 256,
            "optimizer_steps": 2,
            "trainable_parameters": None,
            "total_parameters": None,
        }

    def test_facts_say_whose_clock_it_is_and_that_the_backend_was_never_run(self, finished: Finished) -> None:
        facts = finished.events(0, "environment")[0]["facts"]

        assert (facts["clock"], facts["experimental"]) == ("the trainer's own log", "never run")
        assert any(
            "weights go to the engine of generation by way of files" in text for text in facts["work_differences"]
        )

    def test_memory_is_that_of_the_programs_processes_in_whole_iterations(self, finished: Finished) -> None:
        told = [event for event in finished.events(1, "memory") if event["iteration"] is not None]

        assert {event["phase"] for event in told} == {"other"} and len(told) == 4
        assert all(event["peak_resident_bytes"] > 10_000_000 for event in told)

    def test_nothing_of_the_program_is_left(self, finished: Finished) -> None:
        assert list((finished.folder / "tmp").glob("suite-areal-*")) == []


def test_a_program_that_ends_early_fails_the_run_with_the_steps_it_made(tmp_path: Path) -> None:
    finished = run(tmp_path, 2)

    assert finished.exit_codes == [1, 1]
    failure = finished.events(0, "failure")[0]
    assert "areal ended with code 0 after 2 of 4 steps" in failure["evidence"][0]
    assert json.loads(json.dumps(finished.events(0, "iteration")))[-1]["iteration"] == 1
    assert list(Path(tempfile.gettempdir()).glob("suite-areal-*")) == []
