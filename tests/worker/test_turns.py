"""A rank that takes turns: where it asks, and what others do meanwhile that is none of its own figures."""

import socket
from typing import Any

import pytest
import torch

from suite.worker import session
from suite.worker.events import EventLog
from suite.worker.memory import MemoryProbe
from suite.worker.noise import NoiseProbe
from suite.worker.progress import Progress
from suite.worker.rank import ConfigError, RankIdentity
from suite.worker.recorder import Recorder
from suite.worker.turns import Turns
from suite.worker.world import World
from tests.worker.tiny import tiny_body
from tests.worker.written import events_in

ALONE = World(0, 1, 0, 1, torch.device("cpu"))


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
def test_what_rows_before_it_took_of_a_gpu_is_theirs(before, used, held, monkeypatch):
    class Gpu:
        def used_bytes(self) -> int | None:
            return used

    monkeypatch.setattr(session, "find_gpu", lambda rank: Gpu())
    identity, idle = RankIdentity(0, 1, 0, 1), {"used_bytes": before}
    assert session._held_since(idle, identity, Turns(socket.socket())) == held
    assert session._held_since(idle, identity, Turns()) == 0


def test_a_run_whose_work_does_not_stop_with_its_ranks_takes_no_turns(tmp_path, monkeypatch):
    def build(manifest: dict[str, Any], world: World) -> Any: ...

    build.own_processes = True  # type: ignore[attr-defined]
    monkeypatch.setattr(session, "open_turns", lambda *given: Turns(socket.socket()))
    log, identity = EventLog(str(tmp_path), 0, mirror=False), RankIdentity(0, 1, 0, 1)
    with pytest.raises(ConfigError, match="rows take turns only where all of their work is done by ranks"):
        session.run(tiny_body(), identity, log, Progress(), lambda manifest: build)
