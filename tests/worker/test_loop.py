"""The iteration on a scripted engine: order of phases, counts from what was really done, failures of the work."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from suite.bundle.event_fields import FIELDS, wrong_field
from suite.worker import session
from suite.worker.asked import draw_prompts, expected_counts
from suite.worker.engines.base import Engine, LossFunction
from suite.worker.events import EventLog, Progress
from suite.worker.generation.base import Generator
from suite.worker.loop import Loop
from suite.worker.memory import MemoryProbe
from suite.worker.rank import ConfigError, RankIdentity
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.samples import Samples
from tests.worker.tiny import tiny_body
from tests.worker.trainers.runs import ALONE
from tests.worker.written import events_in

pytestmark = pytest.mark.usefixtures("group_of_one")
WORK = {"ppo_epochs": 2, "optimizer_steps": 2, "rollouts": 8}


class ScriptedEngine(Engine):
    """Answers at once; ``extra_tokens`` and ``token`` let it do other work than it was asked for."""

    device = torch.device("cpu")
    data_parallel_rank, data_parallel_size, replica_leader = 0, 1, True
    total_parameters, trainable_parameters = 100, 60

    def __init__(self, extra_tokens: int = 0, token: int = 7, changed_prompts: int = 0, **stats: float) -> None:
        self.calls: list[str] = []
        self.trained: list[dict[str, torch.Tensor]] = []
        self._stats = {"loss": 0.25, **stats}
        self._extra_tokens, self._token, self._changed_prompts = extra_tokens, token, changed_prompts

    def generate(self, prompts: Samples) -> Samples:
        self.calls.append("generate")
        responses = [length + self._extra_tokens for length in prompts.response_lengths]
        tokens = torch.zeros(len(prompts), max(prompts.prompt_lengths) + max(responses), dtype=torch.int64)
        for row, (prompt, response) in enumerate(zip(prompts.prompt_lengths, responses, strict=True)):
            tokens[row, :prompt] = prompts.tokens[row, :prompt]
            tokens[row, prompt : prompt + response] = self._token
        tokens[: self._changed_prompts, 0] += 1
        return Samples(tokens, prompts.prompt_lengths, responses)

    def score(self, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.append("score")
        mask = samples.mask()
        return -1.0 * mask, torch.arange(float(mask.numel())).reshape(mask.shape) / 10 * mask

    def reference(self, samples: Samples) -> torch.Tensor:
        self.calls.append("reference")
        return -1.5 * samples.mask()

    def train(self, samples: Samples, batch: dict[str, torch.Tensor], loss_fn: LossFunction) -> dict[str, float]:
        self.calls.append("train")
        self.trained.append({**batch, "tokens": samples.tokens})
        _, parts = loss_fn(batch["logprobs"], batch.get("values"), batch)
        return {**{name: float(value) for name, value in parts.items()}, **self._stats}


def iterate(engine: ScriptedEngine, manifest: dict[str, Any], kept: NullRecorder | None = None) -> Any:
    """Counts and statistics of one iteration."""
    return Loop(engine, manifest).run_iteration(0, kept or NullRecorder())


def recorder(folder: Path) -> Recorder:
    return Recorder(ALONE, EventLog(str(folder), 0, mirror=False), MemoryProbe(ALONE.device, 0), None, Progress())


def test_phases_come_in_order_every_epoch_trains_each_sample_once_in_another_order_and_all_is_counted() -> None:
    engine, manifest = ScriptedEngine(), tiny_body(workload=WORK)
    counts, _ = iterate(engine, manifest)
    assert engine.calls == ["generate", "score", "reference", "train", "train", "train", "train"]
    values = [batch["values"][:, 0].tolist() for batch in engine.trained]
    first, second = values[0] + values[1], values[2] + values[3]
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 8
    assert first != second
    wanted = expected_counts(manifest["workload"], manifest["work"])
    assert counts == {**wanted, "trainable_parameters": 60, "total_parameters": 100}
    assert (counts["samples"], counts["trained_tokens"], counts["optimizer_steps"]) == (8, 256, 4)


UNEVEN = {
    **WORK,
    "lengths": {"kind": "list", "listed": [1, 8, 3, 5]},
    "prompt_lengths": {"kind": "list", "listed": [2, 4, 6, 8]},
}


def uneven(**workload: Any) -> dict[str, Any]:
    """Eight samples: responses 1 8 3 5 1 8 3 5, prompts 2 4 6 8 2 4 6 8."""
    return tiny_body(workload={**UNEVEN, **workload})


def test_uneven_samples_are_counted_by_their_tokens_trained_as_they_were_generated_and_weigh_by_their_tokens() -> None:
    engine = ScriptedEngine(padded_tokens=11.0)
    counts, _ = iterate(engine, uneven())
    assert (counts["samples"], counts["prompt_tokens"], counts["response_tokens"]) == (8, 40, 34)
    assert (counts["trained_tokens"], counts["padded_tokens"]) == (2 * 74, 4 * 11), "four optimizer steps"
    for batch in engine.trained:
        mask, weight = batch["mask"], batch["weight"]
        assert mask.shape == weight.shape == batch["advantages"].shape
        assert mask.any(dim=0).all(), "as many columns as the longest response of the step"
        assert float(weight[mask].min()) == float(weight[mask].max()) and not weight[~mask].any()
        assert float(weight.sum()) == pytest.approx(2), "a mean over two micro batches"
    for epoch in (engine.trained[:2], engine.trained[2:]):
        assert sorted(int(length) for batch in epoch for length in batch["mask"].sum(1)) == [1, 1, 3, 3, 5, 5, 8, 8]


def test_samples_of_a_group_have_one_prompt_of_one_length() -> None:
    manifest = uneven(algorithm="grpo", group=4)
    engine = ScriptedEngine()
    _, stats = iterate(engine, manifest)
    assert manifest["work"]["lengths"]["prompt"] == [2] * 4 + [4] * 4
    drawn = draw_prompts(manifest, 0)
    assert all(torch.equal(drawn[0], drawn[row]) for row in range(4)) and not torch.equal(drawn[0], drawn[4])
    assert engine.calls == ["generate", "score", "train", "train", "train", "train"], "no reference phase"
    assert (stats["value_loss"], stats["kl"], stats["clip_share"]) == (None, None, 0.0)


@pytest.mark.parametrize(
    ("engine", "manifest", "words"),
    [
        (ScriptedEngine(changed_prompts=3), uneven(), "3 of 8 samples do not start with their prompts"),
        (ScriptedEngine(extra_tokens=-1), tiny_body(), "forced"),
        (ScriptedEngine(extra_tokens=1), tiny_body(), "forced"),
        # tokens outside the vocabulary are padding
        (
            ScriptedEngine(token=128),
            tiny_body(),
            "response_tokens 32 wanted, 0 done; padded_tokens 0 wanted, 32 done",
        ),
    ],
)
def test_work_that_is_not_the_manifests_fails_the_run(engine: ScriptedEngine, manifest: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        iterate(engine, manifest)


class ScriptedGenerator(Generator):
    """Gives what the engine gives, and log-probs that differ by ``apart`` from the policy's -1 at the first tokens."""

    def __init__(self, engine: ScriptedEngine, apart: float) -> None:
        self._engine, self._apart = engine, apart

    def sync(self) -> None:
        self._engine.calls.append("sync")

    def generate(self, prompts: Samples) -> Samples:
        self._samples = self._engine.generate(prompts)
        return self._samples

    def sleep(self) -> None:
        self._engine.calls.append("sleep")

    @property
    def finish_seconds(self) -> list[float]:
        return [0.1 * length for length in self._samples.response_lengths]

    @property
    def logprobs(self) -> torch.Tensor:
        mask = self._samples.mask()
        apart = torch.zeros(mask.shape)
        apart[:, 0] = self._apart
        return (-1.0 - apart) * mask


#: of log-probs that are 0.5 apart at 8 of 34 tokens
EFFECTIVE = (8 * math.exp(0.5) + 26) ** 2 / (34 * (8 * math.exp(1) + 26))


@pytest.mark.parametrize(
    ("apart", "mean", "most", "effective"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (0.5, 8 * 0.5 / 34, 0.5, EFFECTIVE),
        (1e4, 8 * 1e4 / 34, 1e4, 8 / 34),
        (float("inf"), None, None, None),
        (float("nan"), None, None, None),
    ],
)
def test_a_generator_has_weights_first_sleeps_before_scoring_and_is_told(apart, mean, most, effective, tmp_path):
    engine = ScriptedEngine()
    Loop(engine, uneven(), ScriptedGenerator(engine, apart)).run_iteration(0, recorder(tmp_path))
    assert engine.calls[:4] == ["sync", "generate", "sleep", "score"]
    event = events_in(tmp_path)[-1]
    assert wrong_field(event, FIELDS["rank"]["iteration"]) is None
    assert event["rollout"] == {
        "idle_slot_seconds": pytest.approx(0.1 * (8 - 34 / 8)),
        "logprob_difference_mean": pytest.approx(mean),
        "logprob_difference_max": pytest.approx(most),
        "effective_sample_size": pytest.approx(effective),
    }


def test_statistics_tell_reward_kl_and_losses() -> None:
    workload = {**WORK, "reward": {"kind": "token-below", "threshold": 8}}
    _, stats = iterate(ScriptedEngine(), tiny_body(workload=workload))
    assert stats["reward"] == 1.0
    assert stats["kl"] == pytest.approx(0.5)
    assert stats["loss"] == 0.25
    assert stats["policy_loss"] == pytest.approx(0.0, abs=1e-6)  # whitened advantages at a ratio of one
    assert stats["gradient_norm"] is None
    _, stats = iterate(ScriptedEngine(loss=float("nan")), tiny_body())
    assert stats["loss"] is None, "what is no number"


def test_prompts_depend_on_seed_and_iteration_and_not_on_the_layout() -> None:
    one, two = (tiny_body(ranks, workload={"scaling": "strong"}) for ranks in (1, 2))
    other_seed = tiny_body(measure={"seed": 1})
    assert torch.equal(draw_prompts(one, 3), draw_prompts(two, 3))
    assert not torch.equal(draw_prompts(one, 3), draw_prompts(one, 4))
    assert not torch.equal(draw_prompts(one, 3), draw_prompts(other_seed, 3))
    assert int(draw_prompts(one, 0).max()) < 128


def test_an_iteration_is_recorded_as_the_contract_says(tmp_path: Path) -> None:
    loop, kept = Loop(ScriptedEngine(), tiny_body()), recorder(tmp_path)
    for iteration in range(2):
        loop.run_iteration(iteration, kept)
    events = events_in(tmp_path)
    phases = ("generate", "score", "reference", "reward", "train")
    one = [(kind, phase) for phase in phases for kind in ("phase", "memory")] + [("iteration", None)]
    assert [(event["kind"], event.get("phase")) for event in events] == one * 2
    assert [event["iteration"] for event in events] == [0] * 11 + [1] * 11
    assert not [problem for event in events if (problem := wrong_field(event, FIELDS["rank"][event["kind"]]))]
    inside = sum(event["seconds"] + event["wait_seconds"] for event in events[:10] if event["kind"] == "phase")
    assert 0 < inside <= events[10]["seconds"]


@pytest.mark.parametrize(
    ("precision", "told", "expected"),
    [
        ("fp16", {"skipped_steps": 1.0}, 4),
        ("fp16", {"skipped_steps": 0.0}, 0),
        ("bf16", {"skipped_steps": 0.0}, "absent"),
        ("fp16", {}, "absent"),
    ],
)
def test_steps_that_fp16_skipped_are_summed_in_the_event_and_others_say_nothing(precision, told, expected, tmp_path):
    manifest = tiny_body(workload=WORK, measure={"precision": precision})
    iterate(ScriptedEngine(**told), manifest, recorder(tmp_path))
    event = events_in(tmp_path)[-1]
    assert wrong_field(event, FIELDS["rank"]["iteration"]) is None
    assert event.get("skipped_steps", "absent") == expected


def test_a_session_forgets_the_peaks_of_the_set_up_and_watches_its_models(tmp_path, monkeypatch):
    engine = ScriptedEngine()
    engine.notes, engine.models = (), (torch.nn.Linear(1, 1),)
    score = engine.score
    monkeypatch.setattr(engine, "score", lambda samples: engine.models[0](torch.ones(1)) is not None and score(samples))
    monkeypatch.setattr(session, "join", lambda *_: ALONE)
    monkeypatch.setattr(session, "leave", lambda: None)
    for measure in ("measure_ceilings", "measure_network"):
        monkeypatch.setattr(session, measure, lambda *_: {})
    monkeypatch.setattr(MemoryProbe, "forget_setup", lambda _: engine.calls.append("forget"))
    log = EventLog(str(tmp_path), 0, mirror=False)
    progress = Progress(log=log, beat_seconds=0.0)
    session.run(tiny_body(), RankIdentity(0, 1, 0, 1), log, progress, lambda _: lambda *_: engine)
    assert engine.calls[:2] == ["forget", "generate"]
    assert engine.calls.count("forget") == 1
    beats = [(event["iteration"], event["phase"]) for event in events_in(tmp_path, "heartbeat")]
    assert [beat for beat in beats if beat[1] != "setup"] == [(0, "score"), (1, "score"), (2, "score")]
