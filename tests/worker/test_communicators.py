"""When NCCL's communicators are made, and what they take: torch.cuda and the process group are replaced."""

from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from suite.worker import session
from suite.worker.communicators import Communicators
from suite.worker.engines.base import Engine
from suite.worker.events import EventLog
from suite.worker.progress import Progress
from suite.worker.rank import RankIdentity
from suite.worker.world import World, join
from tests.worker.tiny import rank_environment, tiny_body


def test_communicators_are_made_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def initialise(backend: str, timeout: Any = None, device_id: Any = None) -> None:
        asked.update(backend=backend, device_id=device_id)

    for name, value in rank_environment(1, 2, 29500).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "init_process_group", initialise)
    monkeypatch.setattr(dist, "new_group", dist.new_group)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    world = join(RankIdentity(1, 2, 1, 2), "cuda", 60.0)
    assert world.device == torch.device("cuda", 1)
    assert asked == {"backend": "nccl", "device_id": None}


def test_memory_outside_of_the_allocator_is_noted_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter((90, 60))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (next(free), 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 8)
    notes = Communicators("cuda", 0)
    for when in ("before_join", "joined"):
        notes.note(when)
    assert notes.facts() == {"eager": False, "outside_allocator_bytes": {"before_join": 2, "joined": 32}}


@pytest.mark.parametrize("sleeps", [False, True])
def test_an_engine_that_sleeps_is_seen_awake_and_what_torch_counts_beside_it_is_not_told(tmp_path, monkeypatch, sleeps):
    """Process group, memory and loop are replaced; in which order a session goes about it is real."""
    calls = mock.MagicMock()
    calls.memory.peaks.return_value = {}
    for name in ("Communicators", "MemoryProbe", "Loop", "leave"):
        monkeypatch.setattr(session, name, mock.Mock(return_value=getattr(calls, name.lower().replace("probe", ""))))
    calls.communicators.facts.return_value = None
    monkeypatch.setattr(session, "join", lambda *_: World(0, 1, 0, 1, torch.device("cpu")))
    monkeypatch.setattr(session, "find_generator", lambda _manifest: lambda *_: calls.generator)
    calls.generator.notes = ()
    subject = mock.Mock(spec=Engine, notes=(), models=())
    manifest = tiny_body()
    manifest["layout"]["engine_sleep"] = sleeps
    log = EventLog(str(tmp_path), 0, mirror=False)
    session.run(manifest, RankIdentity(0, 1, 0, 1), log, Progress(), lambda _: lambda *_: subject)
    log.close()
    names = [name for name, _, _ in calls.mock_calls]
    order = [names.index(name) for name in ("memory.note", "generator.sleep", "memory.peaks")]
    assert order == sorted(order)
    assert (mock.call.communicators.note("built") in calls.mock_calls) is not sleeps
