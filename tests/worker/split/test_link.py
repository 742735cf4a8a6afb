"""What the sides tell each other, and how long one waits for the other."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from suite.worker import events as events_module
from suite.worker.events import EventLog, Progress
from suite.worker.manifest import asked_iterations
from suite.worker.rank import ConfigError, RankIdentity
from suite.worker.split import generation as generation_module
from suite.worker.split import link as link_module
from suite.worker.split.generation import generation_manifest, produce_rollouts
from suite.worker.split.link import Link
from suite.worker.split.sides import find_side
from suite.worker.split.weights import OwnLoop, Publications, Publisher
from tests.worker.clock import Clock
from tests.worker.tiny import tiny_body
from tests.worker.trainers.runs import ALONE
from tests.worker.written import events_in

SPLIT = {"placement": "split", "generation_ranks": 1}
NAMES, OTHERS = ("training", "generation"), ("generation", "training")
SILENCE = 100.0


class ScriptedStore:
    """Who waits for a word lets the clock go on, and then whatever the other side does meanwhile happens."""

    def __init__(self, clock: Clock) -> None:
        self.words: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.gone, self._clock = False, clock

    def set(self, word: str, text: str) -> None:
        self.words[word] = text

    def get(self, word: str) -> str:
        return self.words[word]

    def add(self, name: str, count: int) -> int:
        self.counts[name] = self.counts.get(name, 0) + count
        return self.counts[name]

    def wait(self, words: list[str], patience: timedelta) -> None:
        self._clock.now += patience.total_seconds()
        self.meanwhile()
        if not self.check(words):
            raise RuntimeError("wait timeout")

    def check(self, words: list[str]) -> bool:
        if self.gone:
            raise RuntimeError("Connection reset by peer")
        return all(word in self.words for word in words)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, link_module, events_module)


@pytest.fixture
def store(clock: Clock) -> ScriptedStore:
    return ScriptedStore(clock)


def pair(store: Any, progress: Progress | None = None) -> tuple[Link, Link]:
    training, generation = (Link(store, None, 1, names, SILENCE, progress or Progress()) for names in (NAMES, OTHERS))
    return training, generation


def test_the_last_ranks_generate_and_count_from_zero_on_their_side() -> None:
    layout = {**SPLIT, "generation_ranks": 2}
    sides = [find_side(layout, RankIdentity(rank, 5, rank, 5)) for rank in (2, 3, 4)]
    found = [(side.name, side.identity.rank, side.identity.world_size) for side in sides]
    assert found == [("training", 2, 3), ("generation", 0, 2), ("generation", 1, 2)]
    assert [side.identity.local_rank for side in sides] == [2, 3, 4], "each keeps its own device"
    assert find_side({}, RankIdentity(0, 2, 0, 2)) is None


def test_the_generation_side_builds_a_policy_alone_whatever_trains() -> None:
    manifest = tiny_body(
        3,
        layout={**SPLIT, "data": 2, "zero_stage": 3, "recompute": "full"},
        workload={"reference": "hydra", "trainable_layers": 1},
    )
    own = generation_manifest(manifest)
    assert own["generates_only"] is True
    assert (own["layout"]["data"], own["layout"]["zero_stage"], own["layout"]["recompute"]) == (1, 0, "none")
    assert (own["work"]["replica_rollouts"], manifest["work"]["replica_rollouts"]) == (12, 6)
    assert own["workload"]["reference"] == "full"
    assert manifest["layout"]["zero_stage"] == 3


def test_a_word_comes_with_its_facts_through_torchs_own_store() -> None:
    training, generation = pair(dist.TCPStore("127.0.0.1", 0, 1, is_master=True, timeout=timedelta(seconds=120)))
    generation.publish("batch 0 of rank 0", updates=3)
    assert training.wait("batch 0 of rank 0") == {"updates": 3}


def test_a_side_that_works_is_waited_for_longer_than_a_run_may_be_silent(clock, store, tmp_path):
    log, began = EventLog(str(tmp_path), 0, mirror=False), clock.now
    training, generation = pair(store, Progress(log=log, beat_seconds=SILENCE / 2))
    model = torch.nn.Linear(1, 1)
    generation.watch(model)

    def work() -> None:
        for _ in range(3):  # one word of it is enough
            model(torch.zeros(1))
        if clock.now > began + 10 * SILENCE:
            generation.publish("done")

    store.meanwhile = work
    training.wait("done")
    log.close()
    assert clock.now > began + 10 * SILENCE
    assert len(events_in(tmp_path, "heartbeat")) >= 10, "the driver hears that work goes on"


def test_a_side_that_shows_no_sign_of_work_is_given_up_by_name(clock: Clock, store: ScriptedStore) -> None:
    training, _ = pair(store)
    began = clock.now
    with pytest.raises(RuntimeError, match=r"training side timed out after 100 s without a sign of the generation"):
        training.wait("batch 0 of rank 0")
    assert SILENCE < clock.now - began <= 1.1 * SILENCE


def test_a_store_that_is_gone_is_a_connection_that_was_closed(store: ScriptedStore) -> None:
    store.gone = True
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        pair(store)[0].wait("batch 0 of rank 0")


def test_prompts_are_drawn_in_no_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, link = mock.MagicMock(), mock.Mock()
    calls.generator.logprobs = calls.generator.finish_seconds = None
    calls.generator.generate.return_value = mock.Mock(tokens=torch.zeros(1, 1))
    monkeypatch.setattr(generation_module, "prompts_of", lambda _manifest, batch, *_: calls.draw(batch))
    monkeypatch.setattr(generation_module, "_counts", lambda *_: {})
    manifest = generation_manifest(tiny_body(2, layout={**SPLIT, "data": 1}))
    produce_rollouts(calls.generator, mock.Mock(), manifest, ALONE, link, calls.recorder)
    names = [name.split(".")[-1] for name, _, _ in calls.mock_calls]
    iterations = asked_iterations(manifest)
    assert calls.draw.call_args_list == [mock.call(batch) for batch in range(iterations + 1)]
    drawn_at = [place for place, name in enumerate(names) if name == "draw"]
    assert [names[place + 1] for place in drawn_at] == ["sync", *["begin"] * iterations]


def test_a_publication_adds_up_one_tensor_in_sixteen_and_sixteen_publications_all() -> None:
    tensors = torch.nn.ParameterDict({f"{number:02}": torch.full((300,), 2.0**number) for number in range(32)})
    publisher = Publisher(tensors.named_parameters, mock.Mock(carries_tensors=False))
    added = [publisher.publish() for _ in range(16)]
    assert added == [256 * (2.0**number + 2.0 ** (number + 16)) for number in range(16)]


@pytest.mark.parametrize("offered", [[], [["weight", [2, 3], "float32"]], [["other", [3, 2], "float32"]]])
def test_a_publication_of_other_parameters_than_this_side_holds_is_refused(offered: list[Any]) -> None:
    link, engine = mock.Mock(), mock.Mock(models=[torch.nn.Linear(2, 3, bias=False)])
    link.wait.return_value = {"tensors": offered, "parameters": 6}
    with pytest.raises(ConfigError, match=r"0 of 1 parameters|this side does not"):
        OwnLoop(engine, Publications(link, torch.device("cpu"))).sync()


def test_a_publication_in_another_type_is_converted() -> None:
    link, engine = (
        mock.Mock(broadcast=lambda sent: sent.fill_(2)),
        mock.Mock(models=[torch.nn.Linear(2, 3, bias=False)]),
    )
    link.wait.return_value = {"tensors": [["weight", [3, 2], "bfloat16"]], "parameters": 6}
    OwnLoop(engine, Publications(link, torch.device("cpu"))).sync()
    (weight,) = engine.models[0].parameters()
    assert weight.dtype == torch.float32 and (weight == 2).all()
