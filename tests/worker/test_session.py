"""A rank's session: where it takes turns, what others do meanwhile, and when NCCL's communicators are made."""

import socket
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from suite.worker import session
from suite.worker.engines.base import Engine
from suite.worker.events import EventLog, Progress
from suite.worker.memory import Communicators, MemoryProbe
from suite.worker.noise import NoiseProbe
from suite.worker.rank import RankIdentity
from suite.worker.recorder import Recorder
from suite.worker.turns import Turns
from suite.worker.world import join
from tests.worker.tiny import rank_environment, tiny_body
from tests.worker.trainers.runs import ALONE
from tests.worker.written import events_in


def test_a_rank_asks_before_an_iteration_and_before_anything_of_it_is_counted(tmp_path, monkeypatch):
    done: list[str] = []

    def ask(turns: Turns) -> None:
        done.append("asks")
        turns._left = 2

    monkeypatch.setattr(Turns, "ask", ask)
    monkeypatch.setattr(NoiseProbe, "open_window", lambda probe: done.append("counts"))
    log, turns = EventLog(str(tmp_path), 0, mirror=False), Turns(socket.socket())
    recorder = Recorder(ALONE, log, MemoryProbe(ALONE.device, 0), None, Progress(), turns)
    for iteration in range(3):
        recorder.begin(iteration)
    assert done == ["asks", "counts", "counts", "asks", "counts"]
    assert [(event["kind"], event["iteration"]) for event in events_in(tmp_path)] == [("turn", 0), ("turn", 2)]


def test_what_other_rows_take_of_a_gpu_is_in_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    total, used = 1000, [500]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (total - used[0], total))
    probe = MemoryProbe(torch.device("cuda", 0), 0, others=200)
    assert probe._used_now() == 300
    probe.during(lambda: used.__setitem__(0, 900))
    assert probe._used_now() == 300
    used[0] = 950
    assert probe._used_now() == 350, "in its own turn"
    probe.during(lambda: used.__setitem__(0, 350))
    assert probe._used_now() == 350, "another row has ended"


@pytest.mark.parametrize(("before", "used", "held"), [(500, 700, 200), (500, None, 0), (None, 700, 0), (500, 400, 0)])
def test_what_rows_before_it_took_of_a_gpu_is_theirs(before, used, held):
    gpu, idle = mock.Mock(used_bytes=lambda: used), {"used_bytes": before}
    assert session._held_since(idle, gpu, Turns(socket.socket())) == held
    assert session._held_since(idle, gpu, Turns()) == 0
    assert session._held_since(None, None, Turns(socket.socket())) == 0


def test_communicators_are_made_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    initialise = mock.Mock()
    for name, value in rank_environment(1, 2, 29500).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "init_process_group", initialise)
    monkeypatch.setattr(dist, "new_group", dist.new_group)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    world = join(RankIdentity(1, 2, 1, 2), "cuda", 60.0)
    assert world.device == torch.device("cuda", 1)
    assert initialise.call_args.args == ("nccl",) and "device_id" not in initialise.call_args.kwargs


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
    monkeypatch.setattr(session, "join", lambda *_: ALONE)
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
