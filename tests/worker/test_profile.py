"""Traces of one iteration that counts nowhere: bounded, told by phase, and never in the way of what was measured."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from suite.worker import profile
from suite.worker.events import Progress
from suite.worker.profile import MOST_CALLS, ProfilingRecorder
from tests.worker.tiny import run_tiny, tiny_manifest
from tests.worker.trainers.runs import ALONE

PHASES = ("generate", "score", "reference", "reward", "train")


def recorded(folder: Path, calls: int) -> None:
    """A phase in which a model runs that often."""
    model = torch.nn.Linear(4, 4)
    recorder = ProfilingRecorder(ALONE, str(folder), Progress())
    recorder.watch(model)
    recorder.begin(3)
    with recorder.phase("train"):
        for _ in range(calls):
            model(torch.ones(2, 4))


def operators(path: Path) -> list[str]:
    return [event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if "name" in event]


@pytest.mark.parametrize(("calls", "traced", "how"), [(3, 3, "whole"), (20, MOST_CALLS, "until the model had run 8")])
def test_a_phase_is_traced_until_the_model_was_run_a_few_times(tmp_path, calls, traced, how):
    recorded(tmp_path, calls)
    names = operators(tmp_path / "profile" / "rank-0-train.json.gz")
    assert names.count("aten::linear") == traced
    table = (tmp_path / "profile" / "rank-0-train.txt").read_text()
    assert table.startswith(f"train of rank 0, {how}") and "aten::addmm" in table


def test_a_long_trace_is_left_out_and_its_table_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MOST_BYTES", 10)
    recorded(tmp_path, 1)
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["rank-0-train.txt"]
    assert "more than the 10 that are kept" in (tmp_path / "profile" / "rank-0-train.txt").read_text()


def test_what_cannot_be_written_ends_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profile").write_text("in the way")
    recorded(tmp_path, 1)
    assert "profile: train of rank 0 is not kept: " in capsys.readouterr().out


@pytest.mark.ranks
@pytest.mark.ci
@pytest.mark.timeout(400)
def test_a_run_is_traced_on_every_rank_after_all_that_counts(tmp_path: Path) -> None:
    done = run_tiny(tmp_path, tiny_manifest(2, measure={"profile": True}))
    assert done.exit_codes == [0, 0], done.errors
    assert len(done.events(kind="iteration")) == 3, "the traced iteration is none"
    assert [event["iterations"] for event in done.events(1, "end")] == [3]
    for rank in range(2):
        for phase in PHASES:
            path = tmp_path / "profile" / f"rank-{rank}-{phase}.json.gz"
            assert operators(path), phase
    assert "aten::mm" in operators(tmp_path / "profile" / "rank-0-train.json.gz")
