"""The doors by which a trainer takes the suite's prompts and rewards, and by which its log gets out."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from suite.worker.loop import draw_prompts
from suite.worker.rank import ConfigError
from suite.worker.rewards import score_samples
from suite.worker.samples import Samples
from suite.worker.trainers.areal.entry import told as told_by_areal
from suite.worker.trainers.logged.inputs import Rewards, ordinary_tokens, prompts
from suite.worker.trainers.logged.reading import read_all
from suite.worker.trainers.logged.sink import StepSink
from suite.worker.trainers.nemo_rl.entry import told as told_by_nemo_rl
from suite.worker.trainers.skyrl.callback import StepTeller
from tests.worker.trainers.logged.made import body, made_manifest


@pytest.fixture
def sink(tmp_path: Path) -> StepSink:
    return StepSink(str(tmp_path / "log"), "toy", "1")


def logged(tmp_path: Path) -> list[dict[str, float | None]]:
    return [step.values for step in read_all(str(tmp_path / "log"), "toy", ("1",))]


def test_prompts_are_the_manifests_one_for_each_group_in_ordinary_tokens() -> None:
    manifest = body(made_manifest("areal"))
    rows = list(prompts(manifest))
    assert [(row["iteration"], row["number"]) for row in rows[:9]] == [*((0, 2 * n) for n in range(8)), (1, 0)]
    drawn = draw_prompts(manifest, 0)[::2] % ordinary_tokens(manifest)
    assert [row["tokens"] for row in rows[:8]] == drawn.tolist()


def test_the_samples_of_a_prompt_get_the_scores_that_the_suite_gives_them_and_no_more_than_its_group() -> None:
    manifest = body(made_manifest("areal"))
    seed = manifest["measure"]["seed"] * 1_000_003 + 1
    scores = score_samples(manifest["workload"]["reward"], Samples.even(torch.empty(16, 0), 0), seed).tolist()
    rewards = Rewards(manifest)
    assert [rewards.next(1, number) for number in (4, 0, 4, 0)] == [scores[4], scores[0], scores[5], scores[1]]
    with pytest.raises(ConfigError, match="prompt 0 of iteration 1 has more than 2 samples"):
        rewards.next(1, 0)


def test_nemo_rls_logger_is_called_as_before_and_a_step_ends_with_its_timers(sink: StepSink, tmp_path: Path) -> None:
    calls: list[tuple[Any, ...]] = []
    log = told_by_nemo_rl(lambda *given, **named: calls.append((*given[1:], named)), sink)
    log(None, {"worker": 30.0}, 0, prefix="timing/setup")
    log(None, {"loss": 1.0}, 1, prefix="train")
    log(None, {"accuracy": 1.0}, 1, prefix="validation")
    log(None, {"total_step_time": 2.0}, 1, prefix="timing/train", step_finished=True)
    assert [call[2] for call in calls] == ["timing/setup", "train", "validation", "timing/train"]
    assert calls[-1][-1] == {"step_finished": True}
    assert logged(tmp_path) == [{"train/loss": 1.0, "timing/train/total_step_time": 2.0}]


def test_areals_commit_counts_from_zero_and_the_log_from_one(sink: StepSink, tmp_path: Path) -> None:
    sink.begin()
    commits: list[tuple[Any, ...]] = []
    commit = told_by_areal(lambda *given: commits.append(given), sink)
    commit(0, 0, 0, {"a": 1.0})
    commit(0, 1, 1, [{"a": 2.0}, {"b": 3.0}])
    assert commits == [(0, 0, 0, {"a": 1.0}), (0, 1, 1, [{"a": 2.0}, {"b": 3.0}])]
    assert logged(tmp_path) == [{"a": 1.0}, {"a": 2.0, "b": 3.0}]


def test_skyrls_callback_counts_the_batch_and_does_nothing_at_other_events(sink: StepSink, tmp_path: Path) -> None:
    teller, real = StepTeller(sink), torch.ones(4, 6)
    real[0, :2] = 0
    batch = {"attention_mask": real, "response_mask": torch.ones(4, 3)}
    teller.on_train_start(None, None, None)
    teller.on_step_start(None, None, None)
    teller.on_step_end(None, SimpleNamespace(batch=batch), None)
    teller.on_log(None, SimpleNamespace(logs={"timing/step": 1.0}, global_step=1), None)
    counts = {"samples": 4, "prompt_tokens": 10, "response_tokens": 12, "padded_tokens": 2, "trained_tokens": 22}
    assert logged(tmp_path) == [{"timing/step": 1.0, **{f"suite/{name}": count for name, count in counts.items()}}]


def test_areals_workflow_gives_the_prompt_as_it_is_and_the_samples_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ModuleType("areal.api")
    api.ModelRequest, api.RolloutWorkflow = SimpleNamespace, object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "areal", ModuleType("areal"))
    monkeypatch.setitem(sys.modules, "areal.api", api)
    monkeypatch.delitem(sys.modules, "suite.worker.trainers.areal.workflow", raising=False)
    from suite.worker.trainers.areal.workflow import NumberedWorkflow

    manifest = made_manifest("areal")
    (tmp_path / "manifest.json").write_text(manifest.model_dump_json(by_alias=True))
    row = next(iter(prompts(body(manifest))))
    asked: list[Any] = []

    async def agenerate(request: Any) -> Any:
        asked.append(request)
        outputs = {"output_tokens": [1] * 8, "output_logprobs": [-1.0] * 8, "output_versions": [0] * 8}
        return SimpleNamespace(input_tokens=request.input_ids, input_len=8, output_len=8, **outputs)

    workflow = NumberedWorkflow(SimpleNamespace(new=lambda **changes: changes), str(tmp_path / "manifest.json"))
    sample = asyncio.run(workflow.arun_episode(SimpleNamespace(agenerate=agenerate), row))
    assert asked[0].input_ids == row["tokens"] and asked[0].gconfig == {"n_samples": 1}
    assert sample["input_ids"].shape == sample["attention_mask"].shape == (1, 16)
    assert sample["loss_mask"].sum() == 8 and sample["versions"].tolist()[0] == [-1] * 8 + [0] * 8
    assert sample["rewards"].tolist() == pytest.approx([Rewards(body(manifest)).next(0, 0)])
